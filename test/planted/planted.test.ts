// Every guarantee of docs/guarantees.md can be broken by a bug in the code, and a test then fails: the bug is planted while that test runs.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { guarantees, plant } from './bug.js'
import type { Bug } from './bug.js'
import { bugs } from './bugs.js'

const root = fileURLToPath(new URL('../..', import.meta.url))
const read = (file: string): string => readFileSync(`${root}/${file}`, 'utf8')

/** Runs one test with a bug planted, or with none; answers the titles of those that failed and how many passed. */
function run(
  { file, title }: NonNullable<Bug['shown']>,
  bug: Bug | undefined,
): Promise<{ failed: readonly string[]; passed: number }> {
  return new Promise((resolve, reject) => {
    const config = bug === undefined ? 'vitest.config.ts' : 'vitest.planted.config.ts'
    const args = ['run', '--config', config, file, '-t', title, '--reporter=json', '--typecheck.enabled=false']
    const child = spawn(process.execPath, ['node_modules/vitest/vitest.mjs', ...args], {
      cwd: root,
      env: { ...process.env, MILLRACE_PLANT: bug?.title },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let output = ''
    child.stdout.on('data', (part: Buffer) => (output += part.toString()))
    child.once('error', reject)
    child.once('close', () => {
      try {
        const report = JSON.parse(output.slice(output.indexOf('{"numTotalTestSuites"'))) as Report
        const tests = report.testResults.flatMap(({ assertionResults }) => assertionResults)
        resolve({
          failed: tests.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName),
          passed: tests.filter(({ status }) => status === 'passed').length,
        })
      } catch (cause) {
        reject(new Error(`vitest left no report: ${output.slice(-2_000)}`, { cause }))
      }
    })
  })
}

interface Report {
  readonly testResults: readonly {
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[]
  }[]
}

test('every bug of the catalogue can be planted, and changes its file', () => {
  for (const bug of bugs) {
    const source = read(bug.file)
    expect(plant(bug, source), bug.title).not.toBe(source)
  }
  expect(new Set(bugs.map(({ title }) => title)).size).toBe(bugs.length)
})

test('every stated guarantee has bugs that break it', () => {
  const chapter = read('docs/guarantees.md').split('\n## Guarantees\n')[1]!.split('\n## ')[0]!
  const stated = chapter.match(/^- \*\*/gm) ?? []
  expect(guarantees.slice(0, -3)).toHaveLength(stated.length) // the last three are stated in guides
  for (const guarantee of guarantees) {
    expect(bugs.filter((bug) => bug.guarantee === guarantee).length, guarantee).toBeGreaterThanOrEqual(2)
  }
})

describe('a bug that breaks a guarantee is noticed', () => {
  test.each(guarantees)('%s', { timeout: 300_000 }, async (guarantee) => {
    const bug = bugs.find((each) => each.guarantee === guarantee && each.shown !== undefined)
    expect(bug, `no bug of '${guarantee}' names the test that notices it`).toBeDefined()
    const planted = await run(bug!.shown!, bug)
    expect(planted.failed.some((name) => name.includes(bug!.shown!.title))).toBe(true)
    const sound = await run(bug!.shown!, undefined)
    expect(sound).toEqual({ failed: [], passed: expect.any(Number) as number })
    expect(sound.passed).toBeGreaterThan(0)
  })
})
