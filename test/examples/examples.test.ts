// Every example runs as it stands, and prints what it promises.
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
const folder = mkdtempSync(join(tmpdir(), 'millrace-examples-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const expectedOutput: Readonly<Record<string, readonly string[]>> = {
  'batches.ts': ['indexed 4 documents in one request', "'' rejected", "'Sluice' fulfilled"],
  'observing.ts': [
    'completed 50',
    'film ran on encoder',
    'progress, completed, end',
    'shows the card: false',
    "Lost failed for good after 2 attempts: the encoder of 'Lost' is busy",
  ],
  'monitoring.ts': [
    '1 waits, 0 workers',
    'last minute: 1 completed, failure rate 0',
    'welcome: 1 added, 1 completed',
    'deploy 4f2',
    'millrace_job_run_seconds_count{queue="emails",name="welcome"} 1',
  ],
  'timeline.ts': [
    '1 retried has its times',
    '2 snoozed has its times',
    '2 completed has its times',
    'waited and ran: true',
    'mail in layer 1, charge in layer 0',
    'critical path: 2 jobs',
    'expired: true cancelled',
  ],
  'quick-start.ts': ["{ messageId: '<1.ann@example.com>' }"],
  'chains.ts': ['published: /texts/hello', 'steps: draft → review → review → review → publish'],
  'flows.ts': ['rows of orders', 'no rows: failed', 'sum: 14'],
  'dependencies.ts': ['strict: ', 'lenient: loaded'],
  'fairness.ts': ['small was number 3, with 2000 jobs before it'],
  'holds.ts': ['by this worker: true', 'why it waits: held', 'over: 3 true', 'did not count: 1'],
  'limits.ts': ['dropped: true', 'never more than three: true', 'a period after the first: true'],
  'operations.ts': [
    'would retry 1200 jobs: { fetch: { cancelled: 1200 } }',
    'without a filter: true',
    'paused 0 of 1200',
    'completed: 1200 retried, asked for by ann: the service is back',
    'retry 1200, cancel 1200',
  ],
  'phases.ts': [
    'process failed: the encoder is busy',
    'overall 17, 42, 42, 93',
    'video 7: 120 frames at /videos/7',
    'download ran once',
  ],
  'progress-and-cancel.ts': ['ended cancelled'],
  'steps.ts': ['charging', 'signal', 'taken: true', 'taken: false', 'attempt 2', 'receipt of order-1 to 1 Mill Lane'],
  'serverless.ts': [
    'max-jobs: 3 completed',
    'drained: 1 completed',
    'heartbeat: { held: true }',
    'failed once: retrying',
    "attempt 2: { messageId: '<eve>' }",
    'lost: cancelled unsubscribed',
    'doomed: failed no such address',
  ],
  'simulate.ts': ['no violations'],
  'streaming.ts': ['page: 200 text/html', 'first: snapshot then progress', 'after coming back: completed true'],
  'webhooks.ts': [
    'delivered in attempt 2',
    'sent: true 503 then 204',
    'received job.failed of refund no such order',
    'forged: 400',
  ],
  'searching.ts': [
    'paid and failed: { count: 2, exact: true }',
    '3 jobs: ETIMEDOUT at searching.ts:',
    'found: 1 of 6',
    'retried: 3',
    'still failing: 0',
  ],
  'testing.ts': ['signing up adds a welcome now', 'in inline mode, a job has run when add resolves', 'fail 0'],
  'retention.ts': [
    'stale: render (completed)',
    'stale: upload (failed)',
    'deleted: render (completed)',
    'kept: upload',
  ],
  'telemetry.ts': ['job claimed welcome', 'job failed invoice', 'millrace_jobs_added_total', 'state="failed"} 1'],
  'schedules.ts': ['daily-report is scheduled and shows 5 times', 'sweep ended 3', 'runs of sweep: 3', 'field 2 of 5'],
}

/** What examples print of failures. */
const printed: Readonly<Record<string, readonly RegExp[]>> = {
  'observing.ts': [
    /'film' \S+ in queue 'films' on worker 'encoder' failed in attempt 1 of 2 and runs again at \S+: the encoder of 'Safety Last' is busy \(\S*observing\.ts:\d+:\d+\)/,
    /'film' \S+ in queue 'films' on worker 'encoder' failed for good in attempt 2 of 2: the encoder of 'Lost' is busy/,
  ],
}

/** Arguments of examples that would otherwise run until they are interrupted. */
const reported: Readonly<Record<string, readonly string[]>> = { 'streaming.ts': ['--once'] }

/** Starts an example in a folder of its own, where what it writes is out of the way. */
function start(file: string, ...args: string[]): ChildProcess {
  const tsx = pathToFileURL(join(root, 'node_modules/tsx/dist/loader.mjs')).href
  return spawn(process.execPath, ['--import', tsx, join(root, 'examples', file), ...args], {
    cwd: mkdtempSync(join(folder, 'run-')),
    env: { ...process.env, TSX_TSCONFIG_PATH: join(root, 'tsconfig.json') },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 80_000,
  })
}

interface End {
  readonly code: number | null
  readonly lines: readonly string[]
  readonly errors: string
}

/** Waits for an example to end by itself; passes on each line as it comes. */
async function ended(example: ChildProcess, shown: (line: string) => void = () => {}): Promise<End> {
  const lines: string[] = []
  let errors = ''
  example.stderr!.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  createInterface({ input: example.stdout! }).on('line', (line) => {
    lines.push(line)
    shown(line)
  })
  // Its output stays open as long as a process that it started does.
  const code = await new Promise<number | null>((resolve) => example.once('close', resolve))
  return { code, lines, errors }
}

describe('examples', { timeout: 90_000 }, () => {
  for (const file of readdirSync(join(root, 'examples')).filter((name) => name.endsWith('.ts'))) {
    if (file === 'demo.ts') continue // below
    it(`${file} runs to its end and leaves nothing running`, async () => {
      const { code, lines, errors } = await ended(start(file, ...(reported[file] ?? [])))
      expect(code, errors).toBe(0)
      expect(expectedOutput[file]).toBeDefined()
      for (const line of expectedOutput[file]!) expect(lines.join('\n')).toContain(line)
      for (const line of printed[file] ?? []) expect(errors).toMatch(line)
    })
  }

  it('the guide to testing shows its example as it is', () => {
    const example = readFileSync(join(root, 'examples/testing.ts'), 'utf8').split('\n').slice(1).join('\n').trim()
    expect(readFileSync(join(root, 'docs/testing.md'), 'utf8')).toContain(example)
  })

  it('the README shows the quick start as it is', () => {
    const example = readFileSync(join(root, 'examples/quick-start.ts'), 'utf8').split('\n').slice(1).join('\n').trim()
    expect(readFileSync(join(root, 'README.md'), 'utf8')).toContain(example)
  })
})

/** The database and the processes that the demo prints. */
function traces(lines: readonly string[]): { path: string; pids: number[] } {
  const path = /on (.+)$/.exec(lines[0]!)![1]!
  return { path, pids: lines.flatMap((line) => /is ready, process (\d+)/.exec(line)?.[1] ?? []).map(Number) }
}

function lives(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describe('the demo', { timeout: 90_000 }, () => {
  it('kills a worker in mid-job, has its job taken over and another retried, and accounts for all of them', async () => {
    const { code, lines, errors } = await ended(start('demo.ts'))
    const text = lines.join('\n')
    expect(code, errors).toBe(0)

    const [, worker, film] = /(worker \d) \(process \d+\) is killed at \d+ % of (film-\w+)/.exec(text)!
    expect(text).toContain(`the lease of ${worker} on ${film} has run out`)
    const [, successor] = new RegExp(`(worker \\d) takes over ${film} from \\d+ %, attempt 2`).exec(text)!
    expect(successor).not.toBe(worker)
    expect(text).toContain('email-bob failed (421 mailbox busy) and will be retried')

    const rows = lines.slice(lines.findIndex((line) => line.startsWith('kind ')) + 1)
    const counts = rows.map((row) => /^(\w+) +(completed) +(\d+) +(\d+)/.exec(row)?.slice(1)).filter((row) => row)
    const total = (kind: string): number =>
      counts.filter((row) => row![0] === kind).reduce((sum, row) => sum + Number(row![3]), 0)
    expect({ thumbnail: total('thumbnail'), film: total('film'), email: total('email') }).toEqual({
      thumbnail: 16,
      film: 4,
      email: 4,
    })
    expect(text).toMatch(/^all +24$/m)
    expect(text).toContain('24 jobs were added, and each was completed once: nothing was lost.')
    expect(text).toContain(`${film} was taken over by `)

    const { path, pids } = traces(lines)
    expect(pids).toHaveLength(3)
    expect(pids.filter(lives)).toEqual([])
    expect(existsSync(path)).toBe(false)
  })

  it('can be interrupted, and leaves neither processes nor files', async () => {
    const example = start('demo.ts')
    const { code, lines, errors } = await ended(example, (line) => {
      if (line.includes('starts film')) example.kill('SIGINT')
    })
    expect(errors).toContain('Interrupted.')
    expect(code).toBe(130)
    const { path, pids } = traces(lines)
    expect(pids).toHaveLength(3)
    expect(pids.filter(lives)).toEqual([])
    expect(existsSync(path)).toBe(false)
  })

  it('keeps its database with --keep', async () => {
    const example = start('demo.ts', '--keep')
    const { lines } = await ended(example, (line) => {
      if (line.includes('is ready')) example.kill('SIGINT')
    })
    const { path } = traces(lines)
    expect(lines.at(-1)).toBe(`The database is kept: ${path}`)
    expect(existsSync(path)).toBe(true)
    rmSync(join(path, '..'), { recursive: true })
  })
})
