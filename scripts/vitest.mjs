// Runs the vitest suite on a given Node and counts what it did, from vitest's own JSON report.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join, relative } from 'node:path'

/**
 * @param {string} node the Node binary to run on
 * @param {readonly string[]} options further options of vitest
 * @returns {{ ok: boolean, passed: number, failed: number, skipped: number, failures: readonly string[] }}
 */
export function runVitest(node = process.execPath, options = []) {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-report-'))
  const report = join(folder, 'vitest.json')
  try {
    const { status } = spawnSync(
      node,
      [
        'node_modules/vitest/vitest.mjs',
        'run',
        '--reporter=default',
        '--reporter=json',
        `--outputFile.json=${report}`,
        ...options,
      ],
      { stdio: 'inherit', env: { ...process.env, PATH: `${dirname(node)}${delimiter}${process.env.PATH}` } },
    )
    return count(report, status === 0)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A file that could not be loaded has no failed test, so it counts as one failure, and so does a run without a report. */
function count(report, ok) {
  let result
  try {
    result = JSON.parse(readFileSync(report, 'utf8'))
  } catch {
    return { ok: false, passed: 0, failed: 1, skipped: 0, failures: ['vitest itself: it wrote no report'] }
  }
  const failures = result.testResults.flatMap(failuresOf)
  const broken = result.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
  ).length
  const passed = result.numPassedTests
  const failed = result.numFailedTests + broken
  const skipped = result.numPendingTests + (result.numTodoTests ?? 0)
  if (ok) return { ok: failed === 0 && passed > 0, passed, failed, skipped, failures }
  return { ok, passed, failed: failed || 1, skipped, failures }
}

/** The failures of a file, each with its message. */
function failuresOf({ name, status, message, assertionResults }) {
  if (status !== 'failed') return []
  const file = relative(process.cwd(), name)
  const failed = assertionResults.filter((test) => test.status === 'failed')
  if (failed.length === 0) return [`${file}\n${message}`]
  return failed.map((test) => `${file} > ${test.fullName}\n${test.failureMessages.join('\n').slice(0, 2_000)}`)
}
