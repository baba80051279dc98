// Imports every door of the built package by its public name, and expects something behind each.
import { readFileSync } from 'node:fs'

const { name, exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
const doors = Object.keys(exports).filter((path) => path !== './package.json')

for (const door of doors) {
  const specifier = name + door.slice(1)
  const found = Object.keys(await import(specifier))
  if (found.length === 0) throw new Error(`${specifier} exports nothing`)
}
console.log(`smoke: ${doors.length} doors open on Node ${process.versions.node}`)
