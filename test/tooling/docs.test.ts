// Everything a door exports is documented where it is declared: symbols, properties, members, and options with defaults.
import { readFileSync, readdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { parseSync } from 'oxc-parser'
import type { Class, Comment, Statement, TSSignature, TSType, TSTypeLiteral } from 'oxc-parser'
import { describe, expect, test } from 'vitest'

const src = resolve('src')
const doors = readdirSync(src).filter((file) => file.endsWith('.ts'))

/** Types with optional properties: the comment of each property has its default. */
const optional = /(Options|Defaults|Rule|BackoffOf)$/

/** Doors whose types are data that programs make, read and write: each type as a whole documents what its unions hold. */
const loose = new Set(['conformance.ts', 'testing.ts'])

interface Source {
  readonly text: string
  readonly body: readonly Statement[]
  readonly comments: readonly Comment[]
}

interface Declared {
  readonly start: number
  readonly declaration: Statement
  readonly exported: boolean
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

/** Every declaration of a name in a file, exported or not: one, or one for each overload. */
function declarations(source: Source, name: string): Declared[] {
  return source.body.flatMap((statement) => {
    const declaration = statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement
    if (declaration === null) return []
    const ids =
      declaration.type === 'VariableDeclaration'
        ? declaration.declarations.map(({ id }) => id)
        : 'id' in declaration
          ? [declaration.id]
          : []
    const found = ids.some((id) => id?.type === 'Identifier' && id.name === name)
    return found ? [{ start: statement.start, declaration, exported: statement !== declaration }] : []
  })
}

function keyOf(source: Source, key: { readonly start: number; readonly end: number }): string {
  return source.text.slice(key.start, key.end)
}

/** Whether a member of a union begins there, with a comment of its own that documents all that it holds. */
function isMember(source: Source, start: number): boolean {
  const bar = source.text.lastIndexOf('|', start)
  return source.text.slice(bar + 1, start).trim() === '' && docBefore(source, bar) !== undefined
}

/** Whether a property only distinguishes one shape from another: `type: 'fixed'` explains itself. */
function isMark(signature: TSSignature): boolean {
  return signature.type === 'TSPropertySignature' && signature.typeAnnotation?.typeAnnotation.type === 'TSLiteralType'
}

function undocumentedIn(source: Source, name: string, signatures: readonly TSSignature[]): string[] {
  return signatures.flatMap((signature) => {
    if (signature.type !== 'TSPropertySignature' && signature.type !== 'TSMethodSignature') return []
    const where = `${name}.${keyOf(source, signature.key)}`
    if (isMark(signature)) return []
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

/** The object types that a type is put together from: members of unions and intersections, and what these wrap. */
function literals(type: TSType): TSTypeLiteral[] {
  switch (type.type) {
    case 'TSTypeLiteral':
      return [type]
    case 'TSUnionType':
    case 'TSIntersectionType':
      return type.types.flatMap((each) => literals(each))
    case 'TSParenthesizedType':
      return literals(type.typeAnnotation)
    case 'TSTypeOperator':
      return literals(type.typeAnnotation)
    case 'TSArrayType':
      return literals(type.elementType)
    case 'TSTypeReference':
      return (type.typeArguments?.params ?? []).flatMap((each) => literals(each))
    case 'TSMappedType':
      return type.typeAnnotation ? literals(type.typeAnnotation) : []
    case 'TSIndexedAccessType':
      return type.objectType.type === 'TSMappedType' ? literals(type.objectType) : []
    default:
      return []
  }
}

/** What an export is built upon that is no export itself: what an interface or a class extends, and what types are joined of. */
function foundations(file: string, name: string): { readonly file: string; readonly name: string }[] {
  const names = declarations(read(file), name).flatMap(({ declaration }) => {
    switch (declaration?.type) {
      case 'ClassDeclaration':
        return declaration.superClass?.type === 'Identifier' ? [declaration.superClass.name] : []
      case 'TSInterfaceDeclaration':
        return declaration.extends.flatMap(({ expression }) =>
          expression.type === 'Identifier' ? [expression.name] : [],
        )
      case 'TSTypeAliasDeclaration':
        return named(declaration.typeAnnotation)
      default:
        return []
    }
  })
  return names.flatMap((each) => whereIs(file, each) ?? [])
}

/** The types that a type is joined of, by name. */
function named(type: TSType): string[] {
  switch (type.type) {
    case 'TSUnionType':
    case 'TSIntersectionType':
      return type.types.flatMap((each) => named(each))
    case 'TSMappedType':
      return type.typeAnnotation ? named(type.typeAnnotation) : []
    case 'TSIndexedAccessType':
      return named(type.objectType)
    case 'TSTypeReference':
      return [
        ...(type.typeName.type === 'Identifier' ? [type.typeName.name] : []),
        ...(type.typeArguments?.params ?? []).flatMap((each) => named(each)),
      ]
    default:
      return []
  }
}

/** Where a name of a file is declared: there, or in a file of ours that it imports it from. */
function whereIs(file: string, name: string): { readonly file: string; readonly name: string } | undefined {
  const source = read(file)
  if (declarations(source, name).length > 0) return { file, name }
  for (const statement of source.body) {
    if (statement.type !== 'ImportDeclaration' || !statement.source.value.startsWith('.')) continue
    const found = statement.specifiers.find(({ local }) => local.name === name)
    if (found === undefined) continue
    const imported =
      found.type === 'ImportSpecifier' && found.imported.type === 'Identifier' ? found.imported.name : name
    return { file: join(dirname(file), statement.source.value.replace(/\.js$/, '.ts')), name: imported }
  }
  return undefined
}

/** What a door exports, and all that these are built upon. */
function reached(exports: readonly { readonly file: string; readonly name: string }[]) {
  const found = new Map<string, { readonly file: string; readonly name: string }>()
  const rest = [...exports]
  for (let each = rest.pop(); each !== undefined; each = rest.pop()) {
    if (found.has(`${each.file} ${each.name}`)) continue
    found.set(`${each.file} ${each.name}`, each)
    rest.push(...foundations(each.file, each.name))
  }
  return [...found.values()]
}

/** Everything about one export, or what one is built upon, that is not documented. */
function undocumented(file: string, name: string, deep: boolean): string[] {
  const source = read(file)
  const found = declarations(source, name)
  if (found.length === 0) return [`${name} (no declaration found)`]
  const implementation = found.length > 1 ? found.at(-1) : undefined
  return found.flatMap((statement) => {
    const { declaration } = statement
    if (statement === implementation) return []
    const own = docBefore(source, statement.start) === undefined && statement.exported ? [name] : []
    switch (declaration.type) {
      case 'TSInterfaceDeclaration':
        return own.concat(undocumentedIn(source, name, declaration.body.body))
      case 'TSTypeAliasDeclaration': {
        const { typeAnnotation: shape } = declaration
        const wholes = literals(shape).filter(({ start }) => optional.test(name) || !isMember(source, start))
        if (deep) return own.concat(wholes.flatMap(({ members }) => undocumentedIn(source, name, members)))
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
    const all = reached(exports)
    expect(all.flatMap(({ file, name }) => undocumented(file, name, !loose.has(door)))).toEqual([])
  })
})
