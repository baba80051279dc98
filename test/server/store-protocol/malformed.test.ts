// Changes that are malformed are refused with the place, whoever sends them; and nothing of their batch is written.
import { describe, expect, it } from 'vitest'
import { create } from '../../../src/job/change.js'
import type { Change } from '../../../src/job/change.js'
import { exactText } from '../../../src/store/wire/exact-json.js'
import { wire } from '../../../src/store/wire/wire.js'
import { protocolWorld } from './world.js'
import type { ProtocolWorld } from './world.js'

const job = {
  id: 'a',
  kind: 'job',
  queue: 'mail',
  name: 'send',
  version: 1,
  data: '1',
  state: 'waiting',
  priority: 0,
  lifo: false,
  attempts: 3,
  backoff: undefined,
  timeout: undefined,
  run: undefined,
  expires: undefined,
  chainId: 'a',
  chainIndex: 0,
  parentId: undefined,
  group: undefined,
  dedup: undefined,
  keep: undefined,
  extras: undefined,
}
const move = {
  kind: 'move',
  id: 'a',
  fence: 1,
  to: 'completed',
  held: true,
  reaps: undefined,
  place: 'old',
  why: undefined,
  closesBroken: false,
  set: {},
}
const insert = (fields: object): unknown => ({ kind: 'insert', job: { ...job, ...fields }, edges: [] })
const { set: _set, ...withoutSet } = move

/** What a store takes or fails for, and the path that the refusal names. */
const malformed: Readonly<Record<string, readonly [change: unknown, at: string]>> = {
  'data that is no JSON text': [insert({ data: '{oops' }), 'job.data'],
  'data that is no text': [insert({ data: { an: 'object' } }), 'job.data'],
  'a priority that is NaN': [insert({ priority: NaN }), 'job.priority'],
  'a priority that is text': [insert({ priority: 'x' }), 'job.priority'],
  'no name': [insert({ name: undefined }), 'job.name'],
  'a name that is an object': [insert({ name: {} }), 'job.name'],
  'an unknown kind': [{ kind: 'explode' }, 'kind'],
  null: [null, ''],
  'a move without fields to set': [{ ...withoutSet }, 'set'],
  'a state that is none': [{ ...move, to: 'x' }, 'to'],
  'attempts of -1': [insert({ attempts: -1 }), 'job.attempts'],
  'a date that is NaN': [insert({ run: { at: NaN } }), 'job.run.at'],
  'a group that is a number': [insert({ group: 7 }), 'job.group'],
  'a version of 1.5': [insert({ version: 1.5 }), 'job.version'],
  'a deduplication key without a key': [insert({ dedup: {} }), 'job.dedup.key'],
  'a retention of text': [insert({ keep: 'for ever' }), 'job.keep'],
  'an id of control characters': [insert({ id: 'a\u0007', chainId: 'a' }), 'job.id'],
  'an unknown field': [{ kind: 'release', chain: 'a', outcome: 'completed', force: true }, ''],
  'a policy that is none': [{ kind: 'insert', job, edges: [{ on: 'b', policy: 'hope' }] }, 'edges[0].policy'],
}

interface Answer {
  readonly status: number
  readonly body: { readonly code: string; readonly detail: string; readonly details: { readonly at: string } }
}

async function post({ server, tokens }: ProtocolWorld, call: string, body: string, headers = {}): Promise<Answer> {
  const response = await server.fetch(
    new Request(`${server.url}/v1/store/${call}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${tokens.get('admin')!}`,
        'content-type': 'application/json',
        'millrace-protocol': '1',
        ...headers,
      },
      body,
    }),
  )
  return { status: response.status, body: (await response.json()) as Answer['body'] }
}

/** A batch of one good group, the given change as it is, and another good group. */
function batchWith(change: unknown): string {
  const good = (id: string): readonly Change[] => [create({ ...job, id, kind: 'job', run: undefined, edges: [] })]
  const batch = { writer: 'w', seq: 1, groups: [good('first'), good('last')], renewals: [], asks: [] }
  const [sent] = JSON.parse(wire.commit.request.encode(batch)) as [{ groups: unknown[] }]
  sent.groups.splice(1, 0, [{ c: change }])
  return exactText(sent)
}

describe('a change is refused by its place, and so is its batch', () => {
  it.each(Object.entries(malformed))('%s', async (_, [change, at]) => {
    const world = await protocolWorld()
    const { status, body } = await post(world, 'commit', batchWith(change))
    expect({ status, code: body.code }).toEqual({ status: 400, code: 'INVALID_REQUEST' })
    expect(body.details.at).toBe(`body.groups[1][0]${at === '' ? '' : `.${at}`}`)
    expect((await world.store.find({})).items).toEqual([])
  })
})

it('a tuple with more fields than the protocol knows is refused, and one with fewer', async () => {
  const world = await protocolWorld()
  const tuple = Array.from({ length: 21 }, () => 'x')
  for (const i of [[...tuple, [], 'more'], tuple.slice(1), 'x', null]) {
    const sent = { writer: 'w', seq: 1, groups: [[{ i, e: [] }]], renewals: [], asks: [] }
    const { status, body } = await post(world, 'commit', exactText(sent))
    expect({ status, code: body.code }).toEqual({ status: 400, code: 'INVALID_REQUEST' })
  }
})

it('texts that are no message are refused', async () => {
  const world = await protocolWorld()
  const bodies = [
    '{}',
    '[]',
    'null',
    '[1,2,3]',
    '[{}]',
    '[{"groups":[]},[[["__proto__","x"],"inf"]]]',
    '[[],[[[0],"__proto__"]]]',
  ]
  for (const text of bodies) {
    const { status, body } = await post(world, 'commit', text)
    expect({ text, status, code: body.code }).toEqual({ text, status: 400, code: 'INVALID_REQUEST' })
  }
  for (const call of ['get', 'find', 'details', 'tally', 'due']) {
    const { status, body } = await post(world, call, '[{"surprise":1}]')
    expect({ call, status, code: body.code }).toEqual({ call, status: 400, code: 'INVALID_REQUEST' })
  }
  expect({}).not.toHaveProperty('x')
})

it('another protocol is refused, and none', async () => {
  const world = await protocolWorld()
  for (const spoken of ['0', '2', 'x', '']) {
    const { status, body } = await post(world, 'get', '[[]]', { 'millrace-protocol': spoken })
    expect({ status, code: body.code }).toEqual({ status: 426, code: 'PROTOCOL_MISMATCH' })
  }
})

it('a body that inflates beyond the bound is refused before it is read whole', async () => {
  const { gzipSync } = await import('node:zlib')
  const world = await protocolWorld()
  const bomb = gzipSync(`[["${'a'.repeat(40 * 2 ** 20)}"]]`)
  const response = await world.server.fetch(
    new Request(`${world.server.url}/v1/store/commit`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${world.tokens.get('admin')!}`,
        'content-type': 'application/json',
        'content-encoding': 'gzip',
        'millrace-protocol': '1',
      },
      body: bomb,
    }),
  )
  expect(response.status).toBe(413)
})
