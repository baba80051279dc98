// What the statements of a store did, from the plans that the server logs: for tests that nothing reads more than it asked for.
import { Pool } from 'pg'

/** What a statement did: one node of its plan. */
interface Node {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly 'Rows Removed by Index Recheck'?: number
  readonly Plans?: readonly Node[]
}

interface Explained {
  readonly 'Query Text': string
  readonly Plan: Node
}

/** What a call did that it should not, in words; and how many statements it ran on tables of jobs. */
interface Misdeeds {
  readonly found: readonly string[]
  readonly onJobs: number
}

/** Connections whose statements are explained. */
export interface ExplainedPool {
  readonly pool: Pool
  /** Runs a call. No statement of it may read all of a table of jobs, nor read or sort more rows than `most` in one step. */
  misdeeds(call: () => Promise<unknown>, most: number): Promise<Misdeeds>
}

const settings = {
  session_preload_libraries: 'auto_explain',
  'auto_explain.log_min_duration': '0',
  'auto_explain.log_nested_statements': 'on',
  'auto_explain.log_analyze': 'on',
  'auto_explain.log_timing': 'off',
  'auto_explain.log_format': 'json',
  'auto_explain.log_level': 'notice',
}

const tables = new Set(['job', 'edge', 'key', 'tag'])

function* nodesOf(node: Node): Generator<Node> {
  yield node
  for (const each of node.Plans ?? []) yield* nodesOf(each)
}

/** Connects to a database. */
export function explainedPool(url: string): ExplainedPool {
  const plans: Explained[] = []
  const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`)
  const pool = new Pool({ connectionString: url, max: 2, options: options.join(' ') })
  pool.on('connect', (client) => {
    client.on('notice', ({ message = '' }) => {
      const at = message.indexOf('{')
      if (message.includes('plan:')) plans.push(JSON.parse(message.slice(at)) as Explained)
    })
  })
  return {
    pool,
    async misdeeds(call, most) {
      plans.length = 0
      await call()
      const found: string[] = []
      let onJobs = 0
      for (const { 'Query Text': text, Plan } of plans) {
        for (const node of nodesOf(Plan)) {
          const type = node['Node Type']
          const ofJobs = tables.has(node['Relation Name'] ?? '')
          if (ofJobs) onJobs++
          const read =
            (node['Actual Rows'] +
              (node['Rows Removed by Filter'] ?? 0) +
              (node['Rows Removed by Index Recheck'] ?? 0)) *
            node['Actual Loops']
          if (ofJobs && type === 'Seq Scan') found.push(`reads all of ${node['Relation Name']}: ${text}`)
          if (ofJobs && read > most) found.push(`reads ${read} rows of ${node['Relation Name']} by ${type}: ${text}`)
          if (type === 'Sort' && read > most) found.push(`sorts ${read} rows: ${text}`)
        }
      }
      return { found, onJobs }
    },
  }
}
