// Every example runs as it stands, and says what it promises.
import { execFile } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
const run = promisify(execFile)

const says: Readonly<Record<string, readonly string[]>> = {
  'quick-start.ts': ["{ messageId: '<1.ann@example.com>' }"],
  'demo.ts': ['report Monday written', 'not a picture', 'retrying', 'every job is accounted for', "'cancelled'"],
  'dependencies.ts': ['strict: ', 'lenient: loaded'],
  'progress-and-cancel.ts': ['ended cancelled'],
  'simulate.ts': ['no violations'],
}

describe('examples', () => {
  for (const file of readdirSync(join(root, 'examples')).filter((name) => name.endsWith('.ts'))) {
    it(`${file} runs to its end and leaves nothing running`, { timeout: 60_000 }, async () => {
      const tsx = join(root, 'node_modules/tsx/dist/cli.mjs')
      const { stdout } = await run(process.execPath, [tsx, join('examples', file)], { cwd: root, timeout: 50_000 })
      expect(says[file]).toBeDefined()
      for (const line of says[file]!) expect(stdout).toContain(line)
    })
  }

  it('the README shows the quick start as it is', () => {
    const example = readFileSync(join(root, 'examples/quick-start.ts'), 'utf8').split('\n').slice(1).join('\n').trim()
    expect(readFileSync(join(root, 'README.md'), 'utf8')).toContain(example)
  })
})
