// Reading server-sent events in tests: frame by frame, as a browser does, but with comments.
import type { Queue } from 'millrace'

/** One frame of a stream. */
export interface Frame {
  /** The `id:` line. */
  readonly id?: string
  /** The `event:` line. */
  readonly event?: string
  /** The comment, if it has one. */
  readonly comment?: string
  // oxlint-disable-next-line typescript/no-explicit-any -- tests look into it
  readonly data?: any
}

/** A reader of frames. */
export interface Reading {
  /** The next frame; undefined at the end. */
  next(): Promise<Frame | undefined>
  /** The next frame of a type of event; those before it are passed over. */
  event(type: string): Promise<Frame>
  /** All frames up to the one that fits, that one included. */
  until(fits: (frame: Frame) => boolean): Promise<readonly Frame[]>
  cancel(): Promise<void>
}

/** Reads a stream frame by frame, and only on demand. */
export function reading(stream: ReadableStream<Uint8Array>): Reading {
  const reader = stream.getReader()
  const decoder = new TextDecoder()
  let text = ''
  const next = async (): Promise<Frame | undefined> => {
    for (;;) {
      const end = text.indexOf('\n\n')
      if (end >= 0) {
        const frame = parse(text.slice(0, end))
        text = text.slice(end + 2)
        return frame
      }
      const { done, value } = await reader.read()
      if (done) return undefined
      text += decoder.decode(value, { stream: true })
    }
  }
  const until: Reading['until'] = async (fits) => {
    const frames: Frame[] = []
    for (;;) {
      const frame = await next()
      if (frame === undefined) throw new Error(`The stream ended after ${JSON.stringify(frames)}`)
      frames.push(frame)
      if (fits(frame)) return frames
    }
  }
  return {
    next,
    until,
    event: async (type) => (await until(({ event }) => event === type)).at(-1)!,
    cancel: () => reader.cancel(),
  }
}

/** Opens a stream of a queue and reads it. */
export function open(queue: Queue, options: Parameters<Queue['eventStream']>[0] = {}): Reading {
  return reading(queue.eventStream(options))
}

function parse(block: string): Frame {
  const fields: Record<string, string> = {}
  for (const line of block.split('\n')) {
    const colon = line.indexOf(': ')
    fields[colon === 0 ? 'comment' : line.slice(0, colon)] = line.slice(colon + 2)
  }
  const { data, ...rest } = fields
  return { ...rest, ...(data !== undefined && { data: JSON.parse(data) as unknown }) }
}
