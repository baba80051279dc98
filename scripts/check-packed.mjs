// Looks at the package as it is packed: that no page links to what is not in it, and that `scripts/consumer.ts` compiles against
// it as strictly as anybody may ask. It needs `dist`, and nothing from the network.
import { spawn, spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

/** What the program and the types of the package import. */
const dependencies = ['@standard-schema', '@types', 'croner', 'undici-types', 'zod']
const folder = mkdtempSync(join(tmpdir(), 'millrace-packed-'))
const home = join(folder, 'node_modules', 'millrace')

/** Packs the package, and unpacks it where a program in the folder finds it. */
function unpack() {
  mkdirSync(join(folder, 'node_modules'))
  const windows = process.platform === 'win32'
  const pack = ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder]
  const packed = spawnSync('npm', pack, { encoding: 'utf8', shell: windows })
  const file = packed.stdout.trim().split('\n').at(-1)
  const { status } = spawnSync('tar', ['-xzf', file], { cwd: folder, stdio: 'inherit' })
  if (packed.status !== 0 || status !== 0) throw new Error(`The package could not be packed: ${packed.stderr}`)
  renameSync(join(folder, 'package'), home)
  for (const name of dependencies) {
    if (existsSync(resolve('node_modules', name))) {
      symlinkSync(resolve('node_modules', name), join(folder, 'node_modules', name), 'junction')
    }
  }
}

/** The anchors of a page: one for each heading, as GitHub names them. */
function anchors(text) {
  const headings = text.replaceAll(/^```.*?^```/gms, '').matchAll(/^#+ +(.*)$/gm)
  return [...headings].map(([, heading]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )
}

/** Every relative link of a page that leads nowhere. */
function deadLinks(page) {
  const text = readFileSync(page, 'utf8').replaceAll(/^```.*?^```/gms, '')
  const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link)
  return links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false
    const [path, anchor] = link.split('#')
    const target = path === '' ? page : join(dirname(page), path)
    if (!existsSync(target)) return true
    return anchor !== undefined && !anchors(readFileSync(target, 'utf8')).includes(anchor)
  })
}

/** Compiles the program by one set of options; answers what the compiler said. */
async function compile(name, options) {
  const project = join(folder, `tsconfig.${name}.json`)
  const compilerOptions = {
    target: 'ES2023',
    types: ['node'],
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false,
    declaration: true, // so that a type which nobody can name is an error
    outDir: join(folder, name),
    ...options,
  }
  writeFileSync(project, JSON.stringify({ compilerOptions, files: ['consumer.ts'] }))
  const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin/tsc')
  const child = spawn(process.execPath, [tsc, '-p', project], { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] })
  const said = []
  child.stdout.on('data', (chunk) => said.push(chunk))
  const status = await new Promise((ended) => child.once('close', ended))
  return status === 0 ? [] : [`scripts/consumer.ts, ${name}:\n${Buffer.concat(said).toString()}`]
}

try {
  unpack()
  const pages = readdirSync(home, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.md'))
  const faults = pages.flatMap((path) =>
    deadLinks(join(home, path)).map((link) => `${path} links to ${link}, which is not in the package`),
  )
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }\n')
  cpSync('scripts/consumer.ts', join(folder, 'consumer.ts'))
  const resolutions = { nodenext: { module: 'NodeNext' }, bundler: { module: 'ESNext', moduleResolution: 'Bundler' } }
  const libraries = { plain: ['ES2023'], dom: ['ES2023', 'DOM', 'DOM.Iterable'] }
  const ways = Object.entries(resolutions).flatMap(([way, resolution]) =>
    Object.entries(libraries).map(([name, lib]) => compile(`${way}-${name}`, { ...resolution, lib })),
  )
  faults.push(...(await Promise.all(ways)).flat())
  for (const fault of faults) console.error(fault)
  if (faults.length > 0) process.exitCode = 1
  else console.log(`packed: ${pages.length} pages link to what is there, ${ways.length} ways to compile do`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
