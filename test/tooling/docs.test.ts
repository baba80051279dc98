// Everything a door exports is documented where it is declared: symbols, properties, members, and options with defaults.
import { readFileSync, readdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { parseSync } from 'oxc-parser'
import type { Class, Comment, ExportNamedDeclaration, Statement, TSSignature } from 'oxc-parser'
import { describe, expect, test } from 'vitest'

const src = resolve('src')
const doors = readdirSync(src).filter((file) => file.endsWith('.ts'))

/** Interfaces of what a caller may leave out: each optional property says what holds without it. */
const optional = /(Options|Defaults)$/

interface Source {
  readonly text: string
  readonly body: readonly Statement[]
  readonly comments: readonly Comment[]
}

const sources = new Map<string, Source>()

function read(file: string): Source {
  const known = sources.get(file)
  if (known !== undefined) return known
  const text = readFileSync(file, 'utf8')
  const { program, comments } = parseSync(file, text)
  const source = { text, body: program.body, comments }
  sources.set(file, source)
  return source
}

/** The doc comment that ends right before a place, or undefined. */
function docBefore(source: Source, start: number): string | undefined {
  const before = source.comments.findLast((comment) => comment.end <= start)
  if (before === undefined || before.type !== 'Block' || !before.value.startsWith('*')) return undefined
  return source.text.slice(before.end, start).trim() === '' ? before.value : undefined
}

/** What a door names: the file, and the name there. */
function exported(door: string): { readonly file: string; readonly name: string }[] {
  const file = join(src, door)
  return read(file).body.flatMap((statement) => {
    if (statement.type !== 'ExportNamedDeclaration' || statement.source === null) return []
    const from = join(dirname(file), statement.source.value.replace(/\.js$/, '.ts'))
    return statement.specifiers.map(({ local }) => ({
      file: from,
      name: local.type === 'Literal' ? local.value : local.name,
    }))
  })
}

/** Every declaration of a name in a file: one, or one for each overload. */
function declarations(source: Source, name: string): ExportNamedDeclaration[] {
  return source.body.filter((statement): statement is ExportNamedDeclaration => {
    if (statement.type !== 'ExportNamedDeclaration' || statement.declaration === null) return false
    const { declaration } = statement
    if (declaration.type === 'VariableDeclaration') {
      return declaration.declarations.some(({ id }) => id.type === 'Identifier' && id.name === name)
    }
    return 'id' in declaration && declaration.id?.type === 'Identifier' && declaration.id.name === name
  })
}

function keyOf(source: Source, key: { readonly start: number; readonly end: number }): string {
  return source.text.slice(key.start, key.end)
}

function undocumentedIn(source: Source, name: string, signatures: readonly TSSignature[]): string[] {
  return signatures.flatMap((signature) => {
    if (signature.type !== 'TSPropertySignature' && signature.type !== 'TSMethodSignature') return []
    const where = `${name}.${keyOf(source, signature.key)}`
    const doc = docBefore(source, signature.start)
    if (doc === undefined) return [where]
    return signature.optional && optional.test(name) && !/default/i.test(doc) ? [`${where} (its default)`] : []
  })
}

function undocumentedMembers(source: Source, name: string, { body }: Class): string[] {
  const overloaded = new Set<string>()
  return body.body.flatMap((member) => {
    if (member.type === 'StaticBlock' || member.type === 'TSIndexSignature') return []
    if (member.key.type === 'PrivateIdentifier' || member.accessibility === 'private') return []
    if ('override' in member && member.override) return []
    const key = keyOf(source, member.key)
    const bodiless = 'value' in member && member.value?.type === 'TSEmptyBodyFunctionExpression'
    if (bodiless) overloaded.add(key)
    else if (overloaded.has(key)) return [] // callers see the overloads, not what implements them
    return docBefore(source, member.start) === undefined ? [`${name}.${key}`] : []
  })
}

/** Everything about one export that is not documented. */
function undocumented(file: string, name: string): string[] {
  const source = read(file)
  const found = declarations(source, name)
  if (found.length === 0) return [`${name} (no declaration found)`]
  const implementation = found.length > 1 ? found.at(-1) : undefined
  return found.flatMap((statement) => {
    const { declaration } = statement
    if (declaration === null || statement === implementation) return []
    const own = docBefore(source, statement.start) === undefined ? [name] : []
    switch (declaration.type) {
      case 'TSInterfaceDeclaration':
        return own.concat(undocumentedIn(source, name, declaration.body.body))
      case 'TSTypeAliasDeclaration': {
        const { typeAnnotation: shape } = declaration
        return shape.type === 'TSTypeLiteral' ? own.concat(undocumentedIn(source, name, shape.members)) : own
      }
      case 'ClassDeclaration':
        return own.concat(undocumentedMembers(source, name, declaration))
      default:
        return own
    }
  })
}

describe.each(doors)('%s', (door) => {
  const exports = exported(door)

  test('exports something', () => {
    expect(exports.length).toBeGreaterThan(0)
  })

  test('documents all that it exports', () => {
    expect(exports.flatMap(({ file, name }) => undocumented(file, name))).toEqual([])
  })
})
