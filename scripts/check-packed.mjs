// Checks the packed package: every link of its pages leads to a file in it, and `scripts/consumer.ts` compiles against it with
// the strictest options. Needs `dist`, and nothing from the network.
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

/** Packs the package, and unpacks it where a program in the folder can import it. */
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

/** The relative links of a page whose target does not exist. */
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

/** Compiles the program with one set of options; returns the errors of the compiler. */
async function compile(name, options) {
  const project = join(folder, `tsconfig.${name}.json`)
  const compilerOptions = {
    target: 'ES2023',
    types: ['node'],
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false,
    declaration: true, // so that a type that cannot be named is an error
    outDir: join(folder, name),
    ...options,
  }
  writeFileSync(project, JSON.stringify({ compilerOptions, files: ['consumer.ts'] }))
  const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin/tsc')
  const child = spawn(process.execPath, [tsc, '-p', project], { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] })
  const output = []
  child.stdout.on('data', (chunk) => output.push(chunk))
  const status = await new Promise((ended) => child.once('close', ended))
  return status === 0 ? [] : [`scripts/consumer.ts, ${name}:\n${Buffer.concat(output).toString()}`]
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
  const compiled = Object.entries(resolutions).flatMap(([module, resolution]) =>
    Object.entries(libraries).map(([name, lib]) => compile(`${module}-${name}`, { ...resolution, lib })),
  )
  faults.push(...(await Promise.all(compiled)).flat())
  for (const fault of faults) console.error(fault)
  if (faults.length > 0) process.exitCode = 1
  else
    console.log(`packed: the links of ${pages.length} pages are valid, and ${compiled.length} sets of options compile`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
