// Runs the built package where only npm has the runtime or the framework: Bun, Deno, Nest and Next. Each mounts the server by
// a program of `test/system/mounts`, and is asked the same.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { fetchPackage } from './packages.mjs'

const bun = { linux: 'linux', darwin: 'darwin', win32: 'windows' }[process.platform]
const bunArch = process.arch === 'arm64' ? 'aarch64' : process.arch
const bunPackage = `@oven/bun-${bun}-${bunArch}`

// The package `deno` only starts the binary, and would leave it behind.
const denoPlatform = { linux: 'linux', darwin: 'darwin', win32: 'win32' }[process.platform]
const denoPackage = `@deno/${denoPlatform}-${process.arch}${process.platform === 'linux' ? '-glibc' : ''}`

const nest = ['@nestjs/core@12', '@nestjs/common@12', '@nestjs/platform-express@12', 'reflect-metadata', 'rxjs@7']
const next = ['next@16', 'react@19', 'react-dom@19']

/** The longest that a program may take until it listens, and that it may take to answer all. */
const LIMIT = 120_000

/** Packs the built package; returns the file. */
function pack(folder) {
  const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder]
  const { stdout } = spawnSync('npm', args, { encoding: 'utf8', shell: process.platform === 'win32' })
  return join(folder, stdout.trim().split('\n').at(-1))
}

/** How each program is run, below the folder that has the packages. */
const programs = {
  Bun: (home) => [join(home, 'node_modules', bunPackage, 'bin', 'bun'), ['bun.mjs']],
  Deno: (home) => [
    join(home, 'node_modules', denoPackage, 'deno'),
    ['run', '--allow-all', '--node-modules-dir=manual', 'deno.mjs'],
  ],
  Nest: () => [process.execPath, ['nest.mjs']],
  Next: () => [process.execPath, ['next.mjs']],
}

/** Returns the result as `runVitest` does; undefined if the packages could not be installed. */
export async function runMounts(only = Object.keys(programs)) {
  const packed = mkdtempSync(join(tmpdir(), 'millrace-mounts-'))
  try {
    const home = fetchPackage('millrace-mounts', pack(packed), bunPackage, denoPackage, ...nest, ...next)
    if (!home) return undefined
    const folder = join(home, 'programs')
    rmSync(folder, { recursive: true, force: true })
    cpSync(resolve('test/system/mounts'), folder, { recursive: true })
    const { createToken } = await import(pathToFileURL(resolve('dist/server.js')).href)
    const { token, entry } = createToken({ name: 'ann', roles: ['admin'], queues: ['*'] })
    const failures = []
    for (const name of only) {
      try {
        await mounted(programs[name](home), folder, entry, (url) => check(url, token))
        console.log(`${name}: mounted`)
      } catch (error) {
        failures.push(`${name}: ${error.stack}`)
        console.log(failures.at(-1))
      }
    }
    return {
      passed: only.length - failures.length,
      failed: failures.length,
      skipped: 0,
      failures,
      ok: failures.length === 0,
    }
  } finally {
    rmSync(packed, { recursive: true, force: true })
  }
}

/** Runs a program until it was asked. */
async function mounted([command, args], folder, entry, ask) {
  const env = { ...process.env, MILLRACE_TOKENS: JSON.stringify([entry]), NEXT_TELEMETRY_DISABLED: '1' }
  const child = spawn(command, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  const limit = setTimeout(() => child.kill('SIGKILL'), LIMIT)
  const ended = once(child, 'close')
  child.stderr.on('data', (chunk) => (output += chunk))
  try {
    const url = await new Promise((found, failed) => {
      createInterface({ input: child.stdout }).on('line', (line) => {
        output += `${line}\n`
        const listening = /^listening on (\S+)$/.exec(line)
        if (listening) found(listening[1])
      })
      child.on('error', failed)
      void ended.then(() => failed(new Error('It ended before it listened.')))
    })
    await ask(url)
  } catch (error) {
    throw new Error(`${error.message}\n${output.slice(-3_000)}`, { cause: error })
  } finally {
    clearTimeout(limit)
    child.kill('SIGKILL')
    await ended
  }
}

/** Asks for what needs a path, a query, a body, a stream, and an error. */
async function check(url, token) {
  const ask = async (method, path, status, { body, type = 'application/json', secret = token } = {}) => {
    const headers = { authorization: `Bearer ${secret}`, ...(body && { 'content-type': type }) }
    const answer = await fetch(`${url}${path}`, { method, headers, ...(body && { body }) })
    const text = await answer.text()
    if (answer.status !== status) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 500)}`)
    return text === '' ? undefined : JSON.parse(text)
  }
  const expect = (what, found) => {
    if (!found) throw new Error(`expected ${what}`)
  }
  const at = `/v1/queues/${encodeURIComponent('mail/eu')}`
  expect('the caller', (await ask('GET', '/v1', 200)).you.name === 'ann')
  await ask('GET', '/v1', 401, { secret: 'mrt_ann.wrong' })
  expect('a job that waits', (await ask('GET', `${at}/jobs?state=waiting`, 200)).jobs[0].data.to === 'ann')
  await ask('POST', `${at}/pause`, 200, { body: '{"name":"send","reason":"ünï 😀"}' })
  expect('a pause', (await ask('GET', `${at}/limits`, 200)).paused.names[0] === 'send')
  await ask('POST', `${at}/resume`, 200)
  await ask('POST', `${at}/pause`, 415, { body: 'name=send', type: 'text/plain' })
  await ask('GET', '/v1/nowhere', 404)
  await ask('PUT', '/v1/queues', 405)
  const gone = new AbortController()
  const headers = { authorization: `Bearer ${token}` }
  const stream = await fetch(`${url}/v1/live`, { headers, signal: gone.signal })
  let text = ''
  for await (const chunk of stream.body) {
    text += Buffer.from(chunk).toString()
    if (text.includes('mail/eu')) break
  }
  gone.abort()
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const only = process.argv.slice(2)
  const result = await runMounts(only.length > 0 ? only : undefined)
  process.exitCode = result?.ok ? 0 : 1
}
