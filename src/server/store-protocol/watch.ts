// server/store-protocol/watch.ts: the notices of a store as a stream of server-sent events, bounded by what its reader takes.
import { PING_EVERY } from '../../store/wire/protocol.js'
import { watching } from '../../store/wire/wire.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Notice, Store, WatchOptions } from '../../store/store.js'

/** A stream is ended once its reader is so many bytes behind; the reader resumes after the last event that it has. */
const MAX_BEHIND = 8 * 2 ** 20

/** What a stream needs of the server. */
export interface WatchParts {
  readonly store: Pick<Store, 'watch'>
  readonly runtime: Pick<Runtime, 'timer' | 'random'>
  /** What of a notice the caller may know; undefined: nothing. */
  readonly filter: (notice: Notice) => Notice | undefined
  /** Aborts when the client has gone or may no longer read, or the server shuts down. */
  readonly signal: AbortSignal
  /** Called once, when the stream has ended. */
  readonly ended: () => void
}

/** The frames of a stream that watches the store. The first says that it does. */
export function noticeStream(
  options: WatchOptions,
  { store, runtime, filter, signal, ended }: WatchParts,
): ReadableStream {
  const encoder = new TextEncoder()
  let stopWatching: Stop = () => {}
  let stopPing: Stop = () => {}
  let done = false
  const finish = (): boolean => {
    if (done) return false
    done = true
    signal.removeEventListener('abort', end)
    stopWatching()
    stopPing()
    ended()
    return true
  }
  let end = (): void => {}
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        end = () => {
          if (finish()) controller.close()
        }
        const send = (frame: string): void => {
          if (done) return
          controller.enqueue(encoder.encode(frame))
          if (controller.desiredSize !== null && controller.desiredSize <= 0 && finish()) {
            controller.error(new Error('The reader of the stream is too far behind.'))
          }
        }
        const ping = (): void => {
          send(': ping\n\n')
          if (!done) stopPing = runtime.timer(PING_EVERY, ping, true)
        }
        if (signal.aborted) return end()
        signal.addEventListener('abort', end, { once: true })
        stopWatching = store.watch(options, (notice) => {
          const known = filter(notice)
          if (known !== undefined) send(`event: notice\ndata: ${watching.notice.encode(known)}\n\n`)
        })
        send('event: ready\ndata: {}\n\n')
        if (!done) stopPing = runtime.timer(PING_EVERY, ping, true)
      },
      cancel() {
        finish()
      },
    },
    { highWaterMark: MAX_BEHIND, size: (chunk) => chunk?.byteLength ?? 0 },
  )
}
