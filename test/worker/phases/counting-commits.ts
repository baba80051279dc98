// A store that counts its commits.
import type { Store } from 'millrace'

/** The store given, and how many batches were written to it; renewals alone do not count. */
export function countingCommits(store: Store): { readonly store: Store; readonly commits: () => number } {
  let commits = 0
  const commit: Store['commit'] = (batch, tx) => {
    if (batch.groups.length > 0) commits++
    return store.commit(batch, tx)
  }
  const counted = new Proxy(store, {
    get(target, key) {
      if (key === 'commit') return commit
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value
    },
  })
  return { store: counted, commits: () => commits }
}
