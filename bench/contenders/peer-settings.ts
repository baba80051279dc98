// Settings that the peers on a server have in common.

/** The connections of a peer's pool. */
export const CONNECTIONS = 50
/** How many bulks of 1000 are in flight. */
export const BULKS = 2

/** Waits until the store reports that nothing is left, for peers that do not report when the end of a job is recorded. */
export async function settled(left: () => Promise<number>): Promise<void> {
  for (let looks = 0; (await left()) > 0; looks++) {
    if (looks > 10_000) throw new Error('Handlers have run, but their jobs do not end.')
    await new Promise((resolve) => setTimeout(resolve, 3))
  }
}
