// The contenders by name, for processes that are told which one to be.
import { plainjob } from './plainjob.js'
import { raw } from './raw.js'
import { millrace } from './sqlite.js'
import type { Subject } from './subject.js'

/** The contender of that name; a peer must have been installed. */
export async function subjectNamed(name: string): Promise<Subject> {
  if (name === millrace.name) return millrace
  if (name === raw.name) return raw
  if (name === 'plainjob') return plainjob()
  throw new Error(`There is no contender called ${name}.`)
}
