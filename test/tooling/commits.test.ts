// The check of commit subjects, run on repositories made here: whole, shallow, merged and without history.
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'

const SCRIPT = 'scripts/commit-subjects.mjs'

let folder: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-commits-'))
})

afterEach(() => {
  rmSync(folder, { recursive: true, force: true })
})

function git(...options: readonly string[]): void {
  const identity = ['-c', 'user.name=test', '-c', 'user.email=test@example.com', '-c', 'commit.gpgsign=false']
  execFileSync('git', [...identity, ...options], { cwd: folder, stdio: 'pipe' })
}

function commit(subject: string): void {
  git('commit', '--quiet', '--allow-empty', '--no-verify', '-m', subject)
}

/** Puts the script and the list of areas into the folder. */
function install(): void {
  mkdirSync(join(folder, 'scripts'), { recursive: true })
  copyFileSync(resolve(SCRIPT), join(folder, SCRIPT))
  copyFileSync(resolve('CONTRIBUTING.md'), join(folder, 'CONTRIBUTING.md'))
}

/** A repository with an old commit that breaks the rules, and the commit that adds the check. */
function repository(): void {
  git('init', '--quiet', '-b', 'main')
  commit('What was before the rules')
  install()
  git('add', '.')
  commit('ci: check the subjects of commits')
}

function check(cwd = folder): { readonly status: number | null; readonly output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT], { cwd, encoding: 'utf8' })
  return { status, output: stdout + stderr }
}

describe('a subject', () => {
  test('passes with known areas and an imperative, in at most 72 characters', () => {
    const subjects = [
      'worker: return prefetched jobs when handlers slow down',
      'store, job: name the refused change by its index',
      'front door: sort exports by what a user looks for',
      'postgres: pass SQL through PgBouncer',
      'queue: bring order: first in, first out',
      `docs: ${'x'.repeat(66)}`,
    ]
    repository()
    for (const subject of subjects) commit(subject)
    expect(check()).toEqual({ status: 0, output: 'commits: 7 subjects checked\n' })
  })

  test('fails for each rule that it breaks', () => {
    const problems = {
      'Return prefetched jobs': 'is not of the form `area: imperative`',
      'worker:return prefetched jobs': 'is not of the form `area: imperative`',
      'wroker: return prefetched jobs': 'has the unknown area "wroker"',
      'store, jbo: name the refused change': 'has the unknown area "jbo"',
      'worker: Return prefetched jobs': 'begins with a capital letter after the area',
      'worker: return prefetched jobs.': 'ends with a full stop',
      'worker: returns prefetched jobs': 'begins with "returns"; use the imperative',
      'worker: returned prefetched jobs': 'begins with "returned"; use the imperative',
      'worker: returning prefetched jobs': 'begins with "returning"; use the imperative',
      [`docs: ${'x'.repeat(67)}`]: 'has 73 characters; the maximum is 72',
    }
    repository()
    for (const subject of Object.keys(problems)) commit(subject)
    const { status, output } = check()
    expect(status).toBe(1)
    const found = output
      .trim()
      .split('\n')
      .map((line) => line.slice(line.indexOf(' ') + 1))
    const expected = Object.entries(problems).map(([subject, problem]) => `"${subject}" ${problem}.`)
    expect(found.toSorted()).toEqual(expected.toSorted())
  })
})

describe('the commits that are checked', () => {
  test('include the one that adds the check, and none before it', () => {
    repository()
    expect(check()).toEqual({ status: 0, output: 'commits: 1 subjects checked\n' })
  })

  test('leave out merges, and branches that began before the check', () => {
    repository()
    git('checkout', '--quiet', '-b', 'old', 'HEAD~1')
    commit('Old work, merged later')
    git('checkout', '--quiet', 'main')
    git('merge', '--quiet', '--no-ff', '--no-verify', '-m', 'Merge the old work', 'old')
    git('clone', '--quiet', '--depth', '1', `file://${folder}`, join(folder, 'clone'))
    expect(check(join(folder, 'clone')).status).toBe(0)
    commit('queue: refuse unknown options')
    expect(check()).toEqual({ status: 0, output: 'commits: 2 subjects checked\n' })
  })

  test('include branches that began after the check', () => {
    repository()
    git('checkout', '--quiet', '-b', 'new')
    commit('New work')
    git('checkout', '--quiet', 'main')
    commit('queue: refuse unknown options')
    git('merge', '--quiet', '--no-ff', '--no-verify', '-m', 'Merge the new work', 'new')
    expect(check().output).toContain('"New work" is not of the form')
  })

  test('are those of a shallow clone', () => {
    repository()
    for (const subject of ['Not seen in the clone', 'queue: refuse unknown options', 'job: read dates']) commit(subject)
    git('clone', '--quiet', '--depth', '2', `file://${folder}`, join(folder, 'clone'))
    expect(check(join(folder, 'clone'))).toEqual({ status: 0, output: 'commits: 2 subjects checked\n' })
    commit('Seen in the clone')
    git('-C', join(folder, 'clone'), 'pull', '--quiet', '--ff-only')
    expect(check(join(folder, 'clone')).output).toContain('"Seen in the clone" is not of the form')
  })

  test('are none without history, or where the script is not committed', () => {
    install()
    // Another repository may be around the folder, so git is limited to it.
    const alone = spawnSync(process.execPath, [SCRIPT], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, GIT_CEILING_DIRECTORIES: tmpdir() },
    })
    expect(alone).toMatchObject({ status: 0, stdout: 'commits: 0 subjects checked\n' })
    git('init', '--quiet', '-b', 'main')
    expect(check().status).toBe(0)
    writeFileSync(join(folder, 'other.txt'), '')
    git('add', 'other.txt')
    commit('What was before the rules')
    expect(check()).toEqual({ status: 0, output: 'commits: 0 subjects checked\n' })
  })
})
