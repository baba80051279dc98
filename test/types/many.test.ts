// Six hundred declared jobs: what they cost the compiler, in its own deterministic count of instantiations.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

const tsc = resolve('node_modules/typescript/bin/tsc')
let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-many-'))
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'), 'junction')
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  const compilerOptions = {
    paths: { millrace: [resolve('src/index.ts')] },
    typeRoots: [resolve('node_modules/@types')],
  }
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({ extends: resolve('tsconfig.json'), compilerOptions, include: [], files: ['many.ts'] }),
  )
})

afterAll(() => {
  rmSync(folder, { recursive: true, force: true })
})

/** A program with that many jobs, half of them with schemas: each added once and handled, and all of them listened for. */
function program(count: number): string {
  const numbers = Array.from({ length: count }, (_, n) => n)
  return `import { FlowProducer, Queue, Worker, defineJobs, job } from 'millrace'
import type { Store } from 'millrace'
import { z } from 'zod'

declare const store: Store
export const jobs = defineJobs({
${numbers.map(declared).join('\n')}
})
export const queue = new Queue('many', { store, jobs })
${numbers.map((n) => `export const r${n} = (await (await queue.add('job-${n}', { id: 'a', count${n}: 1 })).result()).ok${n}`).join('\n')}
export const worker = new Worker(queue, {
${numbers.map(handled).join('\n')}
})
export const all = new Worker(queue, async (job) => { if (job.name === 'job-0') throw new Error(String(job.data.count0)); return { ok1: true } })
queue.on('completed', (event) => { if (event.name === 'job-1') event.result.ok1 })
queue.on('failed', (event) => { if (event.name === 'job-1') event.error.message })
worker.on('progress', (event) => { if (event.name === 'job-1') event.progress })
export const any: Queue = queue
export const chained = await queue.chain(await queue.add('job-0', { id: 'a', count0: 1 })).result()
export const found = await queue.get('a')
if (found?.name === 'job-1') found.data.count1
await queue.schedule('daily', { every: '1d', name: 'job-1', data: { id: 'a', count1: 1 } })
await queue.addBulk([{ name: 'job-0', data: { id: 'a', count0: 1 } }])
const flows = new FlowProducer({ store, jobs })
export const flow = await flows.add({
  name: 'job-0', queueName: 'many', data: { id: 'a', count0: 1 },
  children: [{ name: 'job-1', queueName: 'many', data: { id: 'b', count1: 1 } }],
})
export const child = (await flow.children[0].job.result()).ok1
`
}

function handled(n: number): string {
  const made = `{ ok${n}: job.data.id === '' }`
  return n % 2 === 0
    ? `  'job-${n}': async (job, ctx) => { await ctx.progress(job.data.count${n}); return ${made} },`
    : `  'job-${n}': (job, ctx) => ctx.complete(async ({ continueWith }) => { await continueWith('job-0', { id: '', count0: 1 }); return ${made} }),`
}

function declared(n: number): string {
  return n % 2 === 0
    ? `  'job-${n}': job({ input: z.object({ id: z.string(), count${n}: z.number(), tags: z.array(z.string()).default([]) }), output: z.object({ ok${n}: z.boolean() }) }),`
    : `  'job-${n}': job<{ id: string; count${n}: number; tags?: string[] }, { ok${n}: boolean }>({ attempts: 5 }),`
}

/** The output of the compiler for a program: its errors, and how much it had to make. */
interface Cost {
  readonly errors: readonly string[]
  readonly instantiations: number
  readonly types: number
}

function compile(text: string): Cost {
  writeFileSync(join(folder, 'many.ts'), text)
  const { stdout } = spawnSync(process.execPath, [tsc, '-p', folder, '--extendedDiagnostics', '--singleThreaded'], {
    cwd: folder,
    encoding: 'utf8',
  })
  const count = (what: string): number => Number(new RegExp(`^${what}:\\s+(\\d+)`, 'm').exec(stdout)?.[1])
  return {
    errors: stdout.split('\n').filter((line) => line.startsWith('many.ts')),
    instantiations: count('Instantiations'),
    types: count('Types'),
  }
}

// Relations between types are not counted: what compares each job with each other shows here as a test that takes minutes.
test('job types cost the compiler the same each, whether there are 100, 300 or 600', { timeout: 600_000 }, () => {
  const few = compile(program(2))
  const [some, more, many] = [100, 300, 600].map((count) => compile(program(count))) as [Cost, Cost, Cost]
  expect([few, some, more, many].flatMap(({ errors }) => errors)).toEqual([])

  const each = (cost: Cost, count: number): readonly [number, number] => [
    (cost.instantiations - few.instantiations) / count,
    (cost.types - few.types) / count,
  ]
  const [instantiations, types] = each(some, 100)
  expect(instantiations).toBeGreaterThan(300) // it was checked at all
  expect(instantiations).toBeLessThan(1500)
  expect(types).toBeLessThan(250)
  for (const [cost, count] of [
    [more, 300],
    [many, 600],
  ] as const) {
    const [then, typesThen] = each(cost, count)
    expect(then / instantiations).toBeLessThan(1.1)
    expect(typesThen / types).toBeLessThan(1.1)
  }
})

test('a mistake among 600 is found', { timeout: 300_000 }, () => {
  const { errors } = compile(`${program(600)}\nvoid queue.add('job-77', { id: 'a', count78: 1 })\n`)
  expect(errors).toHaveLength(1)
  expect(errors[0]).toContain("Did you mean to write 'count77'?")
})
