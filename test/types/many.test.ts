// Five hundred declared jobs: what they cost the compiler, in its own deterministic count of instantiations.
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

/** A program with that many jobs, half of them with schemas, each added once and handled. */
function program(count: number): string {
  const numbers = Array.from({ length: count }, (_, n) => n)
  return `import { Queue, Worker, defineJobs, job } from 'millrace'
import type { Store } from 'millrace'
import { z } from 'zod'

declare const store: Store
export const jobs = defineJobs({
${numbers.map(declared).join('\n')}
})
export const queue = new Queue('many', { store, jobs })
${numbers.map((n) => `export const r${n} = (await (await queue.add('job-${n}', { id: 'a', count${n}: 1 })).result()).ok${n}`).join('\n')}
export const worker = new Worker(queue, {
${numbers.map((n) => `  'job-${n}': async (job, ctx) => { await ctx.progress(job.data.count${n}); return { ok${n}: job.data.id === '' } },`).join('\n')}
})
`
}

function declared(n: number): string {
  return n % 2 === 0
    ? `  'job-${n}': job({ input: z.object({ id: z.string(), count${n}: z.number(), tags: z.array(z.string()).default([]) }), output: z.object({ ok${n}: z.boolean() }) }),`
    : `  'job-${n}': job<{ id: string; count${n}: number; tags?: string[] }, { ok${n}: boolean }>({ attempts: 5 }),`
}

/** What the compiler says of a program of that many jobs: its complaints, and how much it had to instantiate. */
function compile(text: string): { readonly errors: readonly string[]; readonly instantiations: number } {
  writeFileSync(join(folder, 'many.ts'), text)
  const { stdout } = spawnSync(process.execPath, [tsc, '-p', folder, '--extendedDiagnostics', '--singleThreaded'], {
    cwd: folder,
    encoding: 'utf8',
  })
  return {
    errors: stdout.split('\n').filter((line) => line.startsWith('many.ts')),
    instantiations: Number(/^Instantiations:\s+(\d+)/m.exec(stdout)?.[1]),
  }
}

test(
  '500 job types compile without trouble, at a cost that grows with their number and no faster',
  { timeout: 120_000 },
  () => {
    const few = compile(program(2))
    const some = compile(program(100))
    const many = compile(program(500))
    expect([...few.errors, ...some.errors, ...many.errors]).toEqual([])

    const cost = (more: number): number => more - few.instantiations
    expect(cost(many.instantiations)).toBeGreaterThan(50_000) // it was checked at all
    expect(cost(many.instantiations)).toBeLessThan(500_000)
    expect(cost(many.instantiations) / cost(some.instantiations)).toBeLessThan(5.5)
  },
)

test('a mistake among 500 is found', { timeout: 120_000 }, () => {
  const { errors } = compile(`${program(500)}\nvoid queue.add('job-77', { id: 'a', count78: 1 })\n`)
  expect(errors).toHaveLength(1)
  expect(errors[0]).toContain("Did you mean to write 'count77'?")
})
