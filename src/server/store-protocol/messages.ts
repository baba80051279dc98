// server/store-protocol/messages.ts: the bodies of the store protocol: read exactly, and checked before anything is done with
// them.
import { gzip } from 'node:zlib'
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import type { Batch } from '../../store/batch.js'
import { COMPRESS_FROM, OLDEST_PROTOCOL, PROTOCOL, PROTOCOL_HEADER } from '../../store/wire/protocol.js'
import { sentFields, wire } from '../../store/wire/wire.js'
import type { Codec } from '../../store/wire/wire.js'
import type { Answer } from '../route.js'
import type { Shape } from '../shape.js'
import { batch } from './changes.js'
import { require } from './checks.js'
import type { Check } from './checks.js'

/** Throws PROTOCOL_MISMATCH unless the request speaks a protocol that this server does. */
export function checkProtocol(request: Request): void {
  const spoken = request.headers.get(PROTOCOL_HEADER)
  if (spoken !== null && /^\d{1,4}$/.test(spoken)) {
    const number = Number(spoken)
    if (number >= OLDEST_PROTOCOL && number <= PROTOCOL) return
  }
  throw new MillraceError(
    'PROTOCOL_MISMATCH',
    `The server speaks the store protocols ${OLDEST_PROTOCOL} to ${PROTOCOL}, and the header ${PROTOCOL_HEADER} says ${JSON.stringify(spoken?.slice(0, 40) ?? 'nothing')}.`,
    { details: { oldest: OLDEST_PROTOCOL, newest: PROTOCOL } },
  )
}

/** A body that holds a message of the port. */
export function message<T>(codec: Codec<T>, check: Check, description: string, example: T): Shape<T> {
  return {
    schema: { type: 'array', description },
    example: JSON.parse(codec.encode(example)),
    read(value, at) {
      let read: T
      try {
        read = codec.decodeParsed(value)
      } catch (error) {
        throw isMillraceError(error) ? error : notAMessage(at)
      }
      require(check, read, at)
      return read
    },
  }
}

/** A body that holds a batch. */
export const batchMessage: Shape<Batch> = (() => {
  const empty: Batch = { writer: '0190163d-8694-739b-aea5-966c26f8ad90', seq: 1, groups: [], renewals: [], asks: [] }
  const shape = message(wire.commit.request, batch, 'a batch of changes, renewals and claims', empty)
  return {
    ...shape,
    read(value, at) {
      checkTuples(value, at)
      return shape.read(value, at)
    },
  }
})()

/** Tuples with more fields than this version knows are refused, as unknown fields of objects are. */
function checkTuples(value: unknown, at: string): void {
  const groups = ((value as readonly unknown[] | undefined)?.[0] as { readonly groups?: unknown } | undefined)?.groups
  if (!Array.isArray(groups)) throw notAMessage(at)
  for (const [group, changes] of groups.entries()) {
    if (!Array.isArray(changes)) throw notAMessage(`${at}.groups[${group}]`)
    for (const [index, sent] of changes.entries()) {
      const where = `${at}.groups[${group}][${index}]`
      if (typeof sent !== 'object' || sent === null) throw notAMessage(where)
      const { i, m, c } = sent as { readonly i?: unknown; readonly m?: unknown; readonly c?: unknown }
      if (i !== undefined) checkTuple(i, sentFields.insert, where)
      else if (m !== undefined) checkTuple(m, sentFields.move, where)
      else if (typeof c !== 'object' || c === null) throw notAMessage(where)
      for (const key of Object.keys(sent)) {
        if (key === 'c' || key === 'i' || key === 'm' || (key === 'e' && i !== undefined)) continue
        throw new MillraceError(
          'INVALID_REQUEST',
          `${where} has an unknown field ${JSON.stringify(key.slice(0, 60))}.`,
          {
            details: { at: where },
          },
        )
      }
    }
  }
}

function checkTuple(tuple: unknown, fields: number, at: string): void {
  if (!Array.isArray(tuple) || tuple.length < fields) throw notAMessage(at)
  if (tuple.length === fields) return
  const absent: unknown = tuple[fields]
  if (tuple.length === fields + 1 && Array.isArray(absent) && absent.every((index) => Number.isInteger(index))) return
  throw new MillraceError('INVALID_REQUEST', `${at} has an unknown field: it is a tuple of ${fields} fields.`, {
    details: { at },
  })
}

function notAMessage(at: string): MillraceError {
  return new MillraceError('INVALID_REQUEST', `${at} is no message of the store protocol ${PROTOCOL}.`, {
    details: { at },
  })
}

/** The answer to a call, compressed if the client takes that. */
export async function answerOf<T>(codec: Codec<T>, value: T, request: Request): Promise<Answer> {
  const text = codec.encode(value)
  if (text.length < COMPRESS_FROM || !/\bgzip\b/.test(request.headers.get('accept-encoding') ?? '')) return { text }
  const packed = await new Promise<Uint8Array>((resolve, reject) => {
    gzip(text, { level: 1 }, (error, result) => (error === null ? resolve(result) : reject(error)))
  })
  const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip', vary: 'accept-encoding' }
  return new Response(packed as Uint8Array<ArrayBuffer>, { headers })
}
