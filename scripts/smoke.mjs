// Imports every door of the built package by its public name, and checks that each exports something, except `millrace/types`,
// which has only types. Does the same with `require` where Node supports it for ES modules.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const { name, exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
const doors = Object.keys(exports).filter((path) => path !== './package.json')
const required = process.features.require_module === true ? createRequire(import.meta.url) : undefined

for (const door of doors) {
  const specifier = name + door.slice(1)
  const found = Object.keys(await import(specifier))
  if (found.length === 0 && door !== './types') throw new Error(`${specifier} exports nothing`)
  const same = required === undefined || found.every((key) => key in required(specifier))
  if (!same) throw new Error(`require('${specifier}') lacks exports that import has`)
}

// The thread of a store starts from a file of its own.
const { sqlite } = await import(`${name}/sqlite`)
const store = sqlite(':memory:', { thread: true })
await store.open()
await store.close()
const calls = required === undefined ? 'import' : 'import and require'
console.log(`smoke: ${doors.length} doors load with ${calls} on Node ${process.versions.node}`)
