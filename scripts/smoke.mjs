// Imports every door of the built package by its public name, and expects something behind each but `millrace/types`, which has
// types alone; and the same by `require`,
// where Node has it for ES modules.
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
  if (!same) throw new Error(`require('${specifier}') has not what import has`)
}
const ways = required === undefined ? 'import' : 'import and require'
console.log(`smoke: ${doors.length} doors open by ${ways} on Node ${process.versions.node}`)
