// What is stored must be JSON: payloads, results, steps, progress and signals are checked where they are declared or given.
import { expectTypeOf, test } from 'vitest'
import { Queue, defineJobs, job, typed } from 'millrace'
import type { JobContext, Jsonable } from 'millrace'
import { memory } from 'millrace/memory'
import { z } from 'zod'

interface Tree {
  readonly name: string
  readonly note?: string | undefined
  readonly branches?: readonly Tree[]
}

/** All of JSON, as programs, type-fest and Prisma declare it. */
type Json = null | boolean | number | string | Json[] | { [key: string]: Json }
type ReadonlyJson =
  | null
  | boolean
  | number
  | string
  | readonly ReadonlyJson[]
  | { readonly [key: string]: ReadonlyJson }
type JsonValue = string | number | boolean | null | JsonObject | JsonArray
interface JsonObject {
  [key: string]: JsonValue
}
interface JsonArray extends Array<JsonValue> {}
type PrismaJson = string | number | boolean | { [Key in string]?: PrismaJson } | PrismaArray | null
interface PrismaArray extends Array<PrismaJson> {}

/** A type that holds lists of itself, with interfaces among them. */
type Nested = string | Nested[] | Inner
interface Inner {
  readonly all: readonly Nested[]
}
type NestedDates = string | NestedDates[] | InnerDate
interface InnerDate {
  readonly all: readonly NestedDates[]
  readonly at: Date
}

interface Paid {
  readonly at: Date
}

declare const ctx: JobContext
declare const tree: Tree
declare const json: Json
declare const either: number[] | { kind: 'a'; n: number } | { kind: 'b' } | string | null
declare const unknown: unknown
// oxlint-disable-next-line typescript/no-explicit-any -- that it passes is what is tested
declare const any: any

test('what JSON carries passes as it is: interfaces, optional keys, unions, brands, unknown and any', () => {
  expectTypeOf<Jsonable<Tree>>().toEqualTypeOf<Tree>()
  expectTypeOf<Jsonable<unknown>>().toEqualTypeOf<unknown>()
  expectTypeOf<Jsonable<{ at: Date }>>().toEqualTypeOf<{ at: never }>()
  defineJobs({
    tree: job<Tree, Tree | undefined>(),
    none: job<undefined, void>(),
    unknown: job(),
    record: job<Record<string, unknown>>(),
    pairs: job<readonly (readonly [number, string])[]>(),
    union: job<{ kind: 'a'; n: number } | { kind: 'b' }, null>(),
    brand: job<string & { readonly brand: 'id' }>(),
    typed: job({ input: typed<Tree>(), output: typed<Tree>() }),
  })
})

test('types of all JSON, and types that hold lists of themselves, pass', () => {
  expectTypeOf<Jsonable<Json>>().toEqualTypeOf<Json>()
  defineJobs({
    json: job<Json, ReadonlyJson | undefined>(),
    values: job<JsonValue, PrismaJson>(),
    inside: job<{ body: Json; meta?: PrismaJson }, { rows: JsonValue[] }[]>(),
    schema: job({ input: z.json(), output: z.json() }),
    nested: job<Nested, { parts: Nested[] }>(),
    lists: job<unknown[], [first: string, second?: number, ...more: boolean[]]>(),
  })
  // @ts-expect-error somewhere in it is a Date
  defineJobs({ nested: job<NestedDates>() })
  // @ts-expect-error in a list JSON turns undefined into null
  defineJobs({ list: job<(string | undefined)[]>() })
})

test('a payload or a result that is declared as something else does not compile', () => {
  // @ts-expect-error a Date is stored as text
  defineJobs({ pay: job<Paid>() })
  // @ts-expect-error also deep down
  defineJobs({ pay: job<{ orders: { paid: Paid }[] }>() })
  // @ts-expect-error also as a result
  defineJobs({ pay: job<string, Date>() })
  // @ts-expect-error also by a schema
  defineJobs({ pay: job({ input: typed<string>(), output: typed<Map<string, string>>() }) })
  // @ts-expect-error a BigInt is no JSON
  defineJobs({ pay: job<{ cents: bigint }>() })
  // @ts-expect-error nor is a function
  defineJobs({ pay: job<{ then: () => void }>() })
})

test('a step, a progress and a signal keep their types, and refuse what is no JSON', () => {
  expectTypeOf(ctx.step('a', () => tree)).resolves.toEqualTypeOf<Tree>()
  expectTypeOf(ctx.step('a', () => Promise.resolve(tree))).resolves.toEqualTypeOf<Tree>()
  expectTypeOf(ctx.step('a', () => unknown)).resolves.toEqualTypeOf<unknown>()
  expectTypeOf(ctx.step('a', () => {})).resolves.toEqualTypeOf<void>()
  expectTypeOf(ctx.step<'a' | 'b'>('a', () => 'a')).resolves.toEqualTypeOf<'a' | 'b'>()
  expectTypeOf(ctx.step('a', () => either)).resolves.toEqualTypeOf<typeof either>()
  expectTypeOf(ctx.step('a', async () => either)).resolves.toEqualTypeOf<typeof either>()
  expectTypeOf(ctx.step('a', () => json)).resolves.toEqualTypeOf<Json>()
  expectTypeOf(ctx.step('a', async () => json)).resolves.toEqualTypeOf<Json>()
  void ctx.step('a', () => any)
  // @ts-expect-error a Date is no JSON
  void ctx.step('a', () => new Date())
  // @ts-expect-error nor is what holds one
  void ctx.step('a', () => Promise.resolve({ at: new Date() }))
  // @ts-expect-error nor are all members of this one
  void ctx.step('a', () => (json === null ? 1 : new Date()))
  void ctx.progress({ done: 1, of: 3 })
  void ctx.progress(tree)
  void ctx.progress(unknown)
  // @ts-expect-error a Map is no JSON
  void ctx.progress(new Map())
  const queue = new Queue('work', { store: memory() })
  void queue.signal('id', 'go')
  void queue.signal('id', 'go', { by: 'ann', note: undefined })
  void queue.signal('id', 'go', unknown)
  // @ts-expect-error a Date is no JSON
  void queue.signal('id', 'go', { at: new Date() })
})
