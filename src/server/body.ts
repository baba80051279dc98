// server/body.ts: reads the body of a request within bounds: bytes, time, compression, depth.
import { gunzip } from 'node:zlib'
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import { MAX_JSON_DEPTH } from '../job/values/json.js'
import type { Runtime, Stop } from '../store/runtime.js'
import type { Limits } from './options.js'

/** The bytes of bodies that a server holds, of all requests together. */
export class BytesInFlight {
  readonly #most: number
  #bytes = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Takes room for some bytes; throws SERVER_BUSY where there is none. */
  take(bytes: number): void {
    if (this.#bytes > 0 && this.#bytes + bytes > this.#most) {
      throw new MillraceError('SERVER_BUSY', 'The server holds as many bytes of requests as it may. Try again.', {
        details: { retryAfter: 1_000 },
      })
    }
    this.#bytes += bytes
  }

  /** Gives room back. */
  give(bytes: number): void {
    this.#bytes -= bytes
  }
}

/** What reading a body needs of the server. */
export interface BodyReader {
  readonly limits: Limits
  readonly runtime: Pick<Runtime, 'timer'>
  readonly inFlight: BytesInFlight
}

/** How many bytes a compressed body may become for each of its bytes. */
const MAX_RATIO = 100

/**
 * Bodies of announced lengths up to this are read whole: as a stream, a body costs more than all else of its request. Their
 * room is taken before they arrive.
 */
const SMALL = 131_072

/** A body that was read, and the bytes that it holds until it is given back. */
export interface TextBody {
  readonly text: string
  readonly bytes: number
}

/** The text of a body of at most `limit` bytes. The caller gives its `bytes` back to `inFlight` when it has answered. */
export async function readText(request: Request, reader: BodyReader, limit: number): Promise<TextBody> {
  const encoding = request.headers.get('content-encoding') ?? 'identity'
  if (encoding !== 'identity' && encoding !== 'gzip') {
    throw unsupported(
      `The body is compressed as ${JSON.stringify(encoding.slice(0, 40))}: the server takes gzip alone.`,
    )
  }
  const announced = Number(request.headers.get('content-length') ?? 0)
  if (announced > limit) throw tooLarge(limit)
  const { inFlight } = reader
  let taken = 0
  const take = (bytes: number): void => {
    inFlight.take(bytes)
    taken += bytes
  }
  try {
    const isSmall = announced > 0 && announced <= Math.min(SMALL, limit)
    const sent = await (isSmall
      ? readSmall(request, reader, limit, announced, take)
      : readBytes(request, reader, limit, take))
    const bytes = encoding === 'gzip' ? await inflate(sent, limit) : sent
    if (bytes !== sent) take(bytes.length)
    return { text: decode(bytes), bytes: taken }
  } catch (error) {
    inFlight.give(taken)
    throw error
  }
}

/** The JSON of a text, no deeper than what a job may hold, with room for what is around it. */
export function parseJson(text: string): unknown {
  if (depthOf(text) > MAX_JSON_DEPTH + 10) {
    throw invalidBody(`The body is nested more than ${MAX_JSON_DEPTH} levels deep.`)
  }
  try {
    return JSON.parse(text)
  } catch (error) {
    throw invalidBody(`The body is not JSON: ${(error as Error).message.slice(0, 200)}.`)
  }
}

/** Throws unless the body is announced as JSON: what no form and no page of another origin can send. */
export function requireJson(request: Request): void {
  const type = request.headers.get('content-type') ?? ''
  if (/^application\/json\s*(;\s*charset=["']?utf-8["']?\s*)?$/i.test(type)) return
  throw unsupported(`The body must have content-type: application/json, not ${JSON.stringify(type.slice(0, 80))}.`)
}

async function readSmall(
  request: Request,
  reader: BodyReader,
  limit: number,
  announced: number,
  take: (bytes: number) => void,
): Promise<Uint8Array> {
  take(announced)
  const late = lateness(reader)
  try {
    const bytes = new Uint8Array(await Promise.race([request.arrayBuffer(), late.rejects]))
    if (bytes.length > limit) throw tooLarge(limit)
    if (bytes.length > announced) take(bytes.length - announced)
    return bytes
  } catch (error) {
    if (isMillraceError(error)) throw error
    throw invalidBody('The body broke off.')
  } finally {
    late.stop()
  }
}

/** Rejects when a body takes too long. */
function lateness({ limits, runtime }: BodyReader): { readonly rejects: Promise<never>; readonly stop: Stop } {
  let stop: Stop = () => {}
  const rejects = new Promise<never>((_, reject) => {
    stop = runtime.timer(limits.bodyTimeout, () => {
      reject(new MillraceError('REQUEST_TIMEOUT', `The body did not arrive within ${limits.bodyTimeout} ms.`))
    })
  })
  return { rejects, stop }
}

async function readBytes(
  request: Request,
  reader: BodyReader,
  limit: number,
  take: (bytes: number) => void,
): Promise<Uint8Array> {
  if (request.body === null) return new Uint8Array(0)
  const stream = request.body.getReader() as ReadableStreamDefaultReader<Uint8Array>
  const chunks: Uint8Array[] = []
  let length = 0
  const late = lateness(reader)
  try {
    for (;;) {
      const { done, value } = await Promise.race([stream.read(), late.rejects])
      if (done) break
      length += value.length
      if (length > limit) throw tooLarge(limit)
      take(value.length)
      chunks.push(value)
    }
  } catch (error) {
    stream.cancel().catch(() => {})
    if (isMillraceError(error)) throw error
    throw invalidBody('The body broke off.')
  } finally {
    late.stop()
  }
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

function inflate(bytes: Uint8Array, limit: number): Promise<Uint8Array> {
  const most = Math.min(limit, Math.max(65_536, bytes.length * MAX_RATIO))
  return new Promise((resolve, reject) => {
    gunzip(bytes, { maxOutputLength: most }, (error, result) => {
      if (error === null) resolve(result)
      else if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') reject(tooLarge(limit))
      else reject(invalidBody('The body is not valid gzip.'))
    })
  })
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes)
  } catch {
    throw invalidBody('The body is not valid UTF-8.')
  }
}

/** How deep arrays and objects of a JSON text are nested; a text too short to be deep is not looked at. */
export function depthOf(text: string): number {
  if (text.length < MAX_JSON_DEPTH * 2) return 0
  let depth = 0
  let deepest = 0
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char === 0x22) {
      // A string: to its end.
      for (at++; at < text.length; at++) {
        const inside = text.charCodeAt(at)
        if (inside === 0x5c) at++
        else if (inside === 0x22) break
      }
    } else if (char === 0x5b || char === 0x7b) {
      if (++depth > deepest) deepest = depth
    } else if (char === 0x5d || char === 0x7d) depth--
  }
  return deepest
}

function invalidBody(message: string): MillraceError {
  return new MillraceError('INVALID_REQUEST', message, { details: { at: 'body' } })
}

function unsupported(message: string): MillraceError {
  return new MillraceError('UNSUPPORTED_MEDIA_TYPE', message)
}

function tooLarge(limit: number): MillraceError {
  return new MillraceError('BODY_TOO_LARGE', `The body is larger than ${limit} bytes.`, { details: { limit } })
}
