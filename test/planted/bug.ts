// What a planted bug is: one rule of the code turned off by one replacement of text, and the guarantee that it breaks.

/** The guarantees of docs/guarantees.md, in its order; `transactions`, `retention` and `upgrades` are those of their guides. */
export const guarantees = [
  'acknowledged',
  'once',
  'crash',
  'together',
  'schedule',
  'webhook',
  'durable',
  'limits',
  'turns',
  'order',
  'transactions',
  'retention',
  'upgrades',
] as const

/** A guarantee that users are given. */
type Guarantee = (typeof guarantees)[number]

/** A bug that can be planted while the tests run. */
export interface Bug {
  /** What the code does wrong, in a few words. */
  readonly title: string
  readonly guarantee: Guarantee
  /** The source file, from the root of the project. */
  readonly file: string
  /** The text that holds the rule: it stands exactly once in the file. */
  readonly find: string
  /** What stands there instead. */
  readonly replace: string
  /** Further unit tests that meet this rule, besides those of its room. */
  readonly unit?: readonly string[]
  /** The one that shows its guarantee in every run of the suite: the file and a part of the title of the test that fails. */
  readonly shown?: { readonly file: string; readonly title: string }
}

/** Puts a bug into the text of its file. */
export function plant({ title, file, find, replace }: Bug, source: string): string {
  const parts = source.split(find)
  if (parts.length !== 2) {
    throw new Error(`The bug '${title}' cannot be planted: its text stands ${parts.length - 1} times in ${file}.`)
  }
  return parts.join(replace)
}
