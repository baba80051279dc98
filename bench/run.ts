// npm run bench: the everyday rows, beside hand-written programs and other queues. npm run bench:full: all rows.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { sqliteSections } from './cases/sqlite.js'
import { chosen } from './measure/selection.js'
import type { Choice } from './measure/selection.js'
import { driverName } from './contenders/sqlite-driver.js'
import { measure } from './measure/measure.js'
import type { Row, Section } from './measure/measure.js'
import { watchNoise } from './measure/machine-noise.js'
import { installPeers, nodeForPeers } from './contenders/peers.js'
import { plainjob } from './contenders/plainjob.js'
import type { Message, RunOptions } from './run-postgres.js'
import { closing, sectionText } from './report/report.js'
import type { Report } from './report/report.js'
import { createScratch, free, inMemory } from './measure/scratch-files.js'
import { warmUp } from './measure/warm-up.js'

const USAGE = `npm run bench -- [sqlite] [memory] [http] [postgres] [options]
  sqlite, memory, http, postgres   only those stores; default: all
  --full            all rows, with those of a million jobs (npm run bench:full)
  --rounds N        rounds of each row, interleaved; default 3, and not fewer unless with --only
  --only TEXT       only rows whose section or name holds TEXT
  --beside NAMES    only these contenders beside Millrace, separated by commas, or none
  --scale X         X times as many jobs in the rows of PostgreSQL, for trying out
  --url URL         a running PostgreSQL to use; default: one that is started, with fsync on
  --dir FOLDER      where the databases are made; default: the system's temporary folder
  --json            print JSON instead of tables
  --save FILE       write that JSON to a file as well, after every section`

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    full: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
    beside: { type: 'string' },
    scale: { type: 'string', default: '1' },
    url: { type: 'string' },
    dir: { type: 'string' },
    json: { type: 'boolean', default: false },
    save: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

const STORES = ['sqlite', 'memory', 'http', 'postgres']
/** What a full run needs on the disk. */
const DISK_NEEDED = 8 * 2 ** 30

const began = performance.now()
const notes: string[] = []
const about: string[] = []
const rows: Row[] = []
const log = (line: string): void => {
  const seconds = Math.round((performance.now() - began) / 1000)
  process.stderr.write(`${String(seconds).padStart(4)} s  ${line}\n`)
}
const note = (line: string): void => {
  notes.push(line)
  log(line)
}
const numeric = (name: 'rounds' | 'scale'): number => {
  const value = Number(values[name])
  if (!(value > 0)) throw new Error(`--${name} ${values[name]} is not a number above zero.`)
  return value
}

/** Whether the peers are installed. */
function havePeers(): boolean {
  try {
    installPeers(log)
    return true
  } catch (error) {
    const output = String((error as { readonly stderr?: Buffer }).stderr ?? error)
    note(`Peers are left out, because they could not be installed: ${output.trim().split('\n')[0]}`)
    return false
  }
}

const report = (rounds: number): Report => ({
  at: new Date().toISOString(),
  node: process.version,
  driver: driverName,
  machine: `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, ${Math.round(totalmem() / 2 ** 30)} GB`,
  about,
  rounds,
  full: values.full,
  notes,
  rows,
})

/** Saves after every section, so that a long run that is stopped keeps its results. */
function finish(name: string, measured: readonly Row[], rounds: number): void {
  rows.push(...measured)
  save(rounds)
  if (!values.json) console.log(sectionText(name, measured))
}

function save(rounds: number): void {
  if (values.save !== undefined) writeFileSync(values.save, `${JSON.stringify(report(rounds), null, 2)}\n`)
}

/** Runs the rows of SQLite and memory, in this process. */
async function runHere(stores: readonly string[], choice: Choice, peers: boolean): Promise<void> {
  const wanted = peers && (choice.beside?.includes('plainjob') ?? true)
  const beside = wanted ? [await plainjob()] : []
  const scratch = createScratch(values.dir)
  process.once('exit', () => scratch.remove())
  const { full } = values
  const candidates: Section[] = []
  if (stores.includes('sqlite')) candidates.push(...sqliteSections({ scratch, peers: beside, full }))
  if (stores.includes('memory')) {
    // Loaded only when needed: it measures parts of the source, which the package of an older commit may not have.
    const { memorySections } = await import('./cases/memory.js')
    candidates.push(...memorySections(log))
  }
  if (stores.includes('http')) {
    // Loaded only when needed: the package of an older commit may have no server.
    const { httpSections } = await import('./cases/http.js')
    const { restSections } = await import('./cases/rest.js')
    candidates.push(...httpSections(scratch), ...restSections(scratch))
  }
  const sections = candidates.flatMap((section) => chosen(section, choice))
  if (sections.length === 0) return
  if (stores.includes('sqlite')) {
    if (await inMemory(scratch.folder)) {
      note(`${scratch.folder} is in memory, where a sync costs nothing: choose a folder on a disk with --dir.`)
    }
    if (full && (await free(scratch.folder)) < DISK_NEEDED)
      note(`${scratch.folder} has less than 8 GB free: it may run full.`)
    log(`Node ${process.version}, ${driverName}, databases in ${scratch.folder}`)
    await warmUp(beside, scratch)
  }
  for (const section of sections) finish(section.name, await measure(section, 1, log), choice.rounds)
}

/** Runs the rows of PostgreSQL, in a process of their own, on a Node that the peers support. */
async function runPostgres(choice: Choice, peers: boolean): Promise<void> {
  const node = nodeForPeers()
  if (peers && !node.newEnough) note(`Peers of PostgreSQL that declare Node 22 are run on ${process.version}.`)
  const url = values.url === undefined ? {} : { url: values.url }
  const options: RunOptions = { ...choice, ...url, full: values.full, scale: numeric('scale'), peers }
  if (options.scale !== 1) note(`PostgreSQL: ${options.scale} times the usual number of jobs.`)
  const other = fork(fileURLToPath(new URL('run-postgres.ts', import.meta.url)), [JSON.stringify(options)], {
    execPath: node.path,
    ...(values.dir !== undefined && { env: { ...process.env, TMPDIR: values.dir } }),
  })
  other.on('message', (message: Message) => {
    if (message.kind === 'log') log(message.line)
    else if (message.kind === 'note') note(message.line)
    else if (message.kind === 'about') {
      about.push(message.line)
      log(message.line)
    } else finish(message.name, message.rows, choice.rounds)
  })
  const [code] = (await once(other, 'exit')) as [number | null]
  if (code !== 0) throw new Error(`The bench of PostgreSQL ended with code ${code}.`)
}

async function run(): Promise<void> {
  const unknown = positionals.find((name) => !STORES.includes(name))
  if (unknown !== undefined) throw new Error(`There is no store called ${unknown}: ${STORES.join(', ')}.`)
  const stores = positionals.length === 0 ? STORES : positionals
  const rounds = Math.max(values.only === undefined ? 3 : 1, Math.trunc(numeric('rounds')))
  const choice: Choice = {
    rounds,
    ...(values.only !== undefined && { only: values.only }),
    ...(values.beside !== undefined && { beside: values.beside.split(',') }),
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      log(`stopped by ${signal}`)
      process.exit(130)
    })
  }
  const noise = watchNoise()
  const peers = values.beside !== 'none' && havePeers()
  await runHere(stores, choice, peers)
  if (stores.includes('postgres')) await runPostgres(choice, peers)
  if (rows.length === 0) throw new Error(`No row matches ${values.only}.`)
  const others = noise() ?? 0
  if (others > 0.05) {
    note(`Other programs used ${Math.round(others * 100)} % of the machine meanwhile: measure again when it is quiet.`)
  }
  save(rounds)
  if (values.json) console.log(JSON.stringify(report(rounds), null, 2))
  else console.log(closing(report(rounds)))
  if (rows.some((row) => Object.values(row.results).some((result) => result.error !== undefined))) process.exitCode = 1
}

if (values.help) console.log(USAGE)
else await run()
