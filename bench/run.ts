// npm run bench: the everyday rows, beside the raw driver and plainjob. npm run bench:full: all of them.
import { writeFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { parseArgs } from 'node:util'
import { sqliteSections } from './cases.js'
import { driverName } from './driver.js'
import { memorySections } from './memory.js'
import { measure } from './measure.js'
import type { Row, Section } from './measure.js'
import { watchNoise } from './noise.js'
import { installPeers, plainjob } from './plainjob.js'
import { closing, sectionText } from './report.js'
import type { Report } from './report.js'
import { createScratch, free, inMemory } from './scratch.js'
import type { Subject } from './subject.js'
import { warmUp } from './warm.js'

const USAGE = `npm run bench -- [options]
  --full            all rows, with those of a million jobs (npm run bench:full)
  --rounds N        rounds of each row, interleaved; default 3, and not fewer unless with --only
  --only TEXT       only rows whose section or name holds TEXT
  --dir FOLDER      where the databases are made; default: the system's temporary folder
  --json            print JSON instead of tables
  --save FILE       write that JSON to a file as well, after every section`

const { values } = parseArgs({
  options: {
    full: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
    dir: { type: 'string' },
    json: { type: 'boolean', default: false },
    save: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

/** What a full run needs on the disk. */
const ROOM = 8 * 2 ** 30

const began = performance.now()
const notes: string[] = []
const say = (line: string): void => {
  const seconds = Math.round((performance.now() - began) / 1000)
  process.stderr.write(`${String(seconds).padStart(4)} s  ${line}\n`)
}
const note = (line: string): void => {
  notes.push(line)
  say(line)
}

/** Peers, or none where they cannot be had. */
async function findPeers(): Promise<readonly Subject[]> {
  try {
    installPeers(say)
    return [await plainjob()]
  } catch (error) {
    const said = String((error as { readonly stderr?: Buffer }).stderr ?? error)
    note(`plainjob is left out, because it could not be installed: ${said.trim().split('\n')[0]}`)
    return []
  }
}

/** The cases that were asked for, and those that they are compared with. */
function chosen(section: Section, only: string | undefined): Section {
  if (only === undefined) return section
  const matches = (text: string): boolean => text.toLowerCase().includes(only.toLowerCase())
  const asked = section.cases.filter(
    (each) => matches(section.name) || each.figures.some((figure) => matches(figure.name)),
  )
  const targets = asked.flatMap((each) => each.figures.flatMap((figure) => figure.targets ?? []))
  const needed = new Set(targets.flatMap((target) => (target.kind === 'row' ? [target.to] : [])))
  return {
    ...section,
    cases: section.cases.filter(
      (each) => asked.includes(each) || each.figures.some((figure) => needed.has(figure.name)),
    ),
  }
}

async function run(): Promise<void> {
  const rounds = Math.max(values.only === undefined ? 3 : 1, Math.trunc(Number(values.rounds)))
  if (Number.isNaN(rounds)) throw new Error(`--rounds ${values.rounds} is not a number.`)
  const peers = await findPeers()
  const scratch = createScratch(values.dir)
  const cleanUp = (): void => scratch.remove()
  process.once('exit', cleanUp)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      say(`stopped by ${signal}`)
      process.exit(130)
    })
  }
  if (await inMemory(scratch.folder)) {
    note(`${scratch.folder} is in memory, where a sync costs nothing: choose a folder on a disk with --dir.`)
  }
  const { full } = values
  if (full && (await free(scratch.folder)) < ROOM) note(`${scratch.folder} has less than 8 GB free: it may run full.`)

  const sections = [...sqliteSections({ scratch, peers, full }), ...memorySections(say)]
    .map((section) => chosen(section, values.only))
    .filter((section) => section.cases.length > 0)
  if (sections.length === 0) throw new Error(`No row matches ${values.only}.`)
  say(`Node ${process.version}, ${driverName}, databases in ${scratch.folder}`)
  await warmUp([...peers], scratch)

  const noise = watchNoise()
  const rows: Row[] = []
  const report = (): Report => ({
    at: new Date().toISOString(),
    node: process.version,
    driver: driverName,
    machine: `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, ${Math.round(totalmem() / 2 ** 30)} GB`,
    rounds,
    full,
    notes,
    rows,
  })
  /** After every section, so that one who stops a long run keeps what it had come to. */
  const save = (): void => {
    if (values.save !== undefined) writeFileSync(values.save, `${JSON.stringify(report(), null, 2)}\n`)
  }
  for (const section of sections) {
    const measured = await measure(section, rounds, say)
    rows.push(...measured)
    save()
    if (!values.json) console.log(sectionText(section.name, measured))
  }
  const others = noise() ?? 0
  if (others > 0.05) {
    note(`Other programs used ${Math.round(others * 100)} % of the machine meanwhile: measure again when it is quiet.`)
  }
  save()
  if (values.json) console.log(JSON.stringify(report(), null, 2))
  else console.log(closing(report()))
  if (rows.some((row) => Object.values(row.results).some((result) => result.error !== undefined))) process.exitCode = 1
}

if (values.help) console.log(USAGE)
else await run()
