// server/live/live-frames.ts: the frames of /v1/live for one reader: all at first, then what has changed, in small frames.
import type { Principal } from '../principal.js'
import { inScope } from '../principal.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import { PING, eventFrame } from './event-response.js'
import type { LiveSampler, Sample } from './sampler.js'

/** The most characters of the data of one frame, unless one row is longer. */
const MAX_FRAME = 4_000
/** The most rows that one reader gets of each kind. */
const MAX_ROWS = 2_000
const PING_EVERY = 15_000

/** Waits for samples; only the newest counts, so that a slow reader gets fewer. */
class Newest {
  #sample: Sample | undefined
  #wake: (() => void) | undefined

  put(sample: Sample): void {
    this.#sample = sample
    this.#wake?.()
  }

  wake(): void {
    this.#wake?.()
  }

  /** The newest sample that was not taken; undefined after some time, or when it was woken for nothing. */
  async take(runtime: Pick<Runtime, 'timer'>): Promise<Sample | undefined> {
    if (this.#sample === undefined) {
      let stop: Stop = () => {}
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        stop = runtime.timer(PING_EVERY, resolve, true)
      })
      this.#wake = undefined
      stop()
    }
    const sample = this.#sample
    this.#sample = undefined
    return sample
  }
}

/** The frames for one reader, of the queues that its roles hold for, and of `only` some of them. */
export async function* liveFrames(
  sampler: LiveSampler,
  runtime: Pick<Runtime, 'timer'>,
  { principal, only }: { readonly principal: Principal; readonly only: readonly string[] | undefined },
  signal: AbortSignal,
): AsyncGenerator<string, void, void> {
  const wanted = (queue: string): boolean => inScope(principal, queue) && (only?.includes(queue) ?? true)
  const newest = new Newest()
  const stop = sampler.listen((sample) => newest.put(sample))
  const wake = (): void => newest.wake()
  signal.addEventListener('abort', wake)
  const queues = new Changes('queues')
  const workers = new Changes('workers')
  let attention = '[]'
  try {
    while (!signal.aborted) {
      const sample = await newest.take(runtime)
      if (signal.aborted) return
      if (sample === undefined) {
        yield PING
        continue
      }
      const items = sample.attention.filter(({ queue }) => wanted(queue)).slice(0, 50)
      const shown = JSON.stringify(items)
      const frames = [
        ...queues.frames(
          sample.at,
          sample.queues.filter(({ queue }) => wanted(queue)).map((row) => [row.queue, row] as const),
        ),
        ...workers.frames(
          sample.at,
          sample.workers
            .filter((worker) => worker.queues.some(wanted))
            .map((row) => [row.id, { ...row, queues: row.queues.filter(wanted) }] as const),
        ),
        ...(shown === attention ? [] : attentionFrames(sample.at, items)),
      ]
      attention = shown
      for (const frame of frames) yield frame
    }
  } finally {
    signal.removeEventListener('abort', wake)
    stop()
  }
}

/** The list as frames: the first one replaces what the reader has, the others add to it. */
function attentionFrames(at: number, items: readonly object[]): readonly string[] {
  const [first = [], ...more] = portions(items.map((item) => JSON.stringify(item)))
  return [
    eventFrame('attention', `{"at":${at},"items":[${first.join(',')}]}`),
    ...more.map((part) => eventFrame('attention', `{"at":${at},"more":true,"items":[${part.join(',')}]}`)),
  ]
}

function portions(rows: readonly string[]): readonly (readonly string[])[] {
  const found: string[][] = []
  let length = Infinity
  for (const row of rows) {
    if (length + row.length > MAX_FRAME) {
      found.push([])
      length = 0
    }
    found.at(-1)!.push(row)
    length += row.length + 1
  }
  return found
}

/** Rows of one kind as their reader knows them. */
class Changes {
  readonly #kind: string
  readonly #sent = new Map<string, string>()
  #first = true

  constructor(kind: string) {
    this.#kind = kind
  }

  /** Frames of the rows that have changed, and of those that are gone. */
  frames(at: number, rows: readonly (readonly [key: string, row: object])[]): readonly string[] {
    const shown = rows.slice(0, MAX_ROWS)
    const keys = new Set(shown.map(([key]) => key))
    const gone = [...this.#sent.keys()].filter((key) => !keys.has(key))
    for (const key of gone) this.#sent.delete(key)
    const changed: string[] = []
    for (const [key, row] of shown) {
      const text = JSON.stringify(row)
      if (this.#sent.get(key) === text) continue
      this.#sent.set(key, text)
      changed.push(text)
    }
    const frames = portions(changed).map((part) => eventFrame(this.#kind, `{"at":${at},"rows":[${part.join(',')}]}`))
    for (const part of portions(gone.map((key) => JSON.stringify(key)))) {
      frames.push(eventFrame(`${this.#kind}-gone`, `{"at":${at},"keys":[${part.join(',')}]}`))
    }
    // A reader learns that there is nothing, and does not wait for it.
    if (this.#first && frames.length === 0) frames.push(eventFrame(this.#kind, `{"at":${at},"rows":[]}`))
    this.#first = false
    return frames
  }
}
