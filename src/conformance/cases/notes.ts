// conformance/cases/notes.ts: cases on extras, memos, steps, events of notes, and signals.
import { has, must, present, same } from '../check.js'
import { first, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { withListener, typesOf } from '../listener.js'
import {
  cancel,
  complete,
  failAndRetry,
  handBack,
  insert,
  note,
  refusedChange,
  remove,
  retry,
  snooze,
} from '../changes.js'
import type { Change, Note } from '../../job/change.js'
import { endedAttempts } from '../../job/history.js'
import type { Extras, JobRecord } from '../../job/job.js'

const noteWith = (job: JobRecord, more: Partial<Note>): Change => ({ ...(note(job, {})[0] as Note), ...more })

/** Cases of notes. */
export const notes = area('notes', {
  'the extras of a job are returned as they were written': async (h) => {
    const d = first(h)
    const webhook = {
      url: 'https://example.org/ž?a=1',
      on: ['completed', 'failed'],
      attempts: 5,
      backoff: { type: 'fixed', delay: 10 },
      timeout: 1_000,
    } as const
    const extras: Extras = { phases: ['download', 'process'], webhook, trace: '00-1-2-01' }
    const plain = await d.add('work')
    const added = await d.add('work', { extras })
    same([plain.extras, added.extras, added.memo], [undefined, extras, undefined], 'extras are stored')
    const [one, two] = [await d.claimOne(), await d.claimOne()]
    same([one.extras, two.extras], [undefined, extras], 'and a claim returns them')
    await d.land(failAndRetry(two, 0))
    same((await d.job(two)).extras, extras, 'and stay')
  },

  'a memo is written by notes and by moves, and stays until it is written again': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(noteWith(held, { memo: '{"a":1}' }))
    const noted = await d.job(held)
    same(noted, { ...held, memo: '{"a":1}' }, 'a note writes the memo, and nothing else')
    await d.land(note(held, { progress: 5 }))
    same((await d.job(held)).memo, '{"a":1}', 'a note that has none leaves it')
    await d.land(failAndRetry(held, 0))
    await d.upkeep()
    const again = await d.claimOne()
    same(again.memo, '{"a":1}', 'it goes with the job from attempt to attempt')
    const [move, ...rest] = complete(again, { result: 1 })
    if (move?.kind === 'move') await d.land([{ ...move, set: { ...move.set, memo: '{"b":"ž"}' } }, ...rest])
    same([(await d.job(held)).memo, (await d.job(held)).result], ['{"b":"ž"}', '1'], 'a move writes it, too')
    const ended = await d.job(held)
    await d.land({ kind: 'note', id: held.id, fence: ended.fence, held: false, memo: '{}' })
    same(await d.job(held), { ...ended, memo: '{}' }, 'and so does a note on a job that has ended')
  },

  'a memo is fenced': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(handBack(held))
    const verdict = await d.send([noteWith(held, { memo: '1', steps: [{ name: 'a', result: '1' }] })])
    same([verdict.ok, !verdict.ok && verdict.why], [false, 'fence'], 'an old fence is refused')
    same([(await d.job(held)).memo, (await d.details(held)).steps], [undefined, []], 'and nothing is written')
  },

  'steps are remembered in the order in which they first ended': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const other = await d.running('work')
    await d.land(
      noteWith(held, {
        steps: [
          { name: 'one', result: '1' },
          { name: 'zwei', result: undefined },
        ],
      }),
    )
    await d.land(noteWith(other, { steps: [{ name: 'one', result: '"of another"' }] }))
    await d.land(
      noteWith(held, {
        steps: [
          { name: 'a', result: 'null' },
          { name: 'one', result: '[2]' },
        ],
      }),
    )
    const expected = [
      { name: 'one', result: '[2]' },
      { name: 'zwei', result: undefined },
      { name: 'a', result: 'null' },
    ]
    same((await d.details(held)).steps, expected, 'one of the same name takes the place of the one before')
    same(await d.job(held), held, 'and the job stays as it is')
    await d.land(failAndRetry(held, 0))
    same(
      (await (await second(h)).details(held)).steps,
      expected,
      'they outlive an attempt, and every handle returns them',
    )
    await d.land(remove(await d.job(held)))
    same((await d.details(held)).steps, [], 'and are removed with their job')
    same((await d.details(other)).steps, [{ name: 'one', result: '"of another"' }], 'those of others stay')
  },

  'a step whose length is given gets the time at which it ended': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await h.advance(1_000)
    await d.land(noteWith(held, { steps: [{ name: 'one', result: '1', ran: 250 }] }))
    const { now } = d.receipt
    const step = { name: 'one', result: '1', ran: 250, endedAt: now }
    same((await d.details(held)).steps, [step], 'by the clock of the store')
    await h.advance(1_000)
    await d.land(noteWith(held, { steps: [{ name: 'one', result: '2', ran: 30 }] }))
    same(
      (await d.details(held)).steps,
      [{ ...step, result: '2', ran: 30, endedAt: d.receipt.now }],
      'the last one holds',
    )
    await d.land(noteWith(held, { steps: [{ name: 'one', result: '3' }] }))
    same((await d.details(held)).steps, [{ name: 'one', result: '3' }], 'and a step without a length has none')
  },

  'attempts that end without completing their job are kept with start, end, worker and outcome': async (h) => {
    const d = first(h)
    const added = await d.add('work', { attempts: 9 })
    const starts: number[] = []
    const claim = async (): Promise<JobRecord> => {
      await h.advance(1_000)
      const held = await d.claimOne({ lease: 60_000 })
      starts.push(held.startedAt ?? 0)
      await h.advance(1_000)
      return held
    }
    await d.land(snooze(await claim(), 0))
    await d.land(failAndRetry(await claim(), 0))
    await d.land(handBack(await claim()))
    await claim()
    await h.advance(60_000)
    await d.upkeep()
    await d.land(cancel(await claim(), 'too late'))
    await d.land(retry(await d.job(added)))
    const last = await claim()
    await d.land(complete(last))
    const job = await d.job(added)
    const ended = endedAttempts(job)
    same(
      ended.map(({ outcome, worker, attempt }) => [outcome, worker, attempt]),
      [
        ['snoozed', 'miller', 1],
        ['retried', 'miller', 1],
        ['handed-back', 'miller', 2],
        ['stalled', 'miller', 2],
        ['cancelled', 'miller', 3],
      ],
      'each is kept, in order',
    )
    same(
      ended.map(({ startedAt }) => startedAt),
      starts.slice(0, 5),
      'with its start',
    )
    for (const { at, startedAt } of ended) must(at >= startedAt + 1_000, 'and its end')
    has(job, { state: 'completed', startedAt: starts[5], worker: 'miller' }, 'the last one is in the record')
    same((await (await second(h)).job(added)).history, job.history, 'every handle reads the same')
    const { jobs } = await h.store.due({ queues: ['mill'], except: [], limit: 9 })
    same(jobs, [], 'nothing else is due')
  },

  'a job that completes in its first attempt keeps no history': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(complete(held))
    has(await d.job(held), { history: undefined, errors: [] }, 'its times are in the record')
  },

  'steps of a refused group were never there': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(noteWith(held, { steps: [{ name: 'one', result: '1' }] }))
    const refused = await d.send([
      noteWith(held, {
        memo: '9',
        steps: [
          { name: 'one', result: '2' },
          { name: 'two', result: '3' },
        ],
      }),
      refusedChange(),
    ])
    same(refused.ok, false, 'the group is refused')
    same((await d.details(held)).steps, [{ name: 'one', result: '1' }], 'and its steps with it')
    same((await d.job(held)).memo, undefined, 'and its memo')
    const dropped = await d.send([
      ...cancel(held),
      ...remove({ ...held, fence: held.fence + 1, state: 'cancelled' }),
      refusedChange(),
    ])
    same(dropped.ok, false, 'a refused removal')
    same((await d.details(held)).steps, [{ name: 'one', result: '1' }], 'leaves them where they were')
  },

  'a note publishes its events, after its progress and in order': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      const held = await d.running('work')
      const phaseEvents = [
        { type: 'phase', about: '{"phase":"a","status":"completed"}' },
        { type: 'phase', about: '{"phase":"b","status":"active"}' },
      ] as const
      await d.land(noteWith(held, { progress: '33', about: '{"phase":"a"}', memo: '1', events: phaseEvents }))
      await d.land(complete(held))
      const ended = await d.job(held)
      const sent = { type: 'webhook-delivered', about: '{"url":"ž"}' } as const
      const lost = { type: 'webhook-failed', about: '{}' } as const
      await d.land({ kind: 'note', id: held.id, fence: ended.fence, held: false, events: [sent, lost] })
      const events = (await listener.received(d)).filter(({ id }) => id === held.id)
      const life = ['waiting', 'active', 'progress', 'phase', 'phase', 'completed', sent.type, lost.type]
      same(typesOf(events, held.id), life, 'each is published once, in order')
      const about = events.map((event) => event.about).filter((text) => text !== undefined)
      same(
        about,
        ['{"phase":"a"}', ...phaseEvents.map((event) => event.about), '{"url":"ž"}', '{}'],
        'with its `about`',
      )
      const phase = present(
        events.find(({ type }) => type === 'phase'),
        'a phase',
      )
      same([phase.queue, phase.name], [held.queue, held.name], 'and has the queue and name of the job')
    })
  },

  'notes on many jobs in one batch: each is written, and a refused one does not affect the others': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      for (let n = 0; n < 6; n++) await d.add('work')
      const held = await d.claim(6)
      same(held.length, 6, 'all are leased')
      await d.land(handBack(held[2]!))
      const phaseEvent = (n: number) => ({ type: 'phase', about: `{"phase":"ž${n}"}` }) as const
      const notesOf: Partial<Note>[] = [
        { memo: '{"a":0}', events: [phaseEvent(0), phaseEvent(1)] },
        { progress: '1', about: '{"phase":"b"}', memo: '{"a":"\\u001f ž"}', logs: ['one', 'two'] },
        { progress: '2', memo: '{"lost":true}', events: [phaseEvent(2)] },
        { progress: '"3"' },
        { memo: '{"a":4}' },
        { logs: ['five'], progress: '5', events: [phaseEvent(5)] },
      ]
      const receipt = await d.commit({ groups: held.map((job, n) => [noteWith(job, notesOf[n]!)]) })
      same(
        receipt.groups.map(({ ok }) => ok),
        [true, true, false, true, true, true],
        'all except the one whose lease was given up',
      )
      const now = await h.store.get(held.map(({ id }) => id))
      same(
        now.map((job) => [job?.memo, job?.progress]),
        [
          ['{"a":0}', undefined],
          ['{"a":"\\u001f ž"}', '1'],
          [undefined, undefined],
          [undefined, '"3"'],
          ['{"a":4}', undefined],
          [undefined, '5'],
        ],
        'each job has its own',
      )
      const events = (await listener.received(d)).filter(({ type }) => type === 'progress' || type === 'phase')
      const received = held.map(({ id }) =>
        events.filter((event) => event.id === id).map(({ type, about, progress }) => [type, about, progress]),
      )
      const phase = (n: number): unknown[] => ['phase', phaseEvent(n).about, undefined]
      same(
        received,
        [
          [phase(0), phase(1)],
          [['progress', '{"phase":"b"}', '1']],
          [],
          [['progress', undefined, '"3"']],
          [],
          [['progress', undefined, '5'], phase(5)],
        ],
        'and publishes its own, in order',
      )
      same(
        (await d.details(held[1]!)).logs.map(({ line }) => line),
        ['one', 'two'],
        'lines are written as well',
      )
    })
  },

  'settlements of many jobs with notes in the same group: each is applied whole, or not at all': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      for (let n = 0; n < 12; n++) await d.add('work')
      const held = await d.claim(12)
      await d.land(handBack(held[3]!))
      const noteOf = (job: JobRecord, n: number): Change =>
        noteWith(job, {
          memo: `{"n":${n}}`,
          events: [{ type: 'phase', about: `{"phase":"${n}"}` }],
          ...(n % 4 === 1 && { progress: `${n}`, about: '{"phase":"p"}' }),
        })
      const settle = (job: JobRecord, n: number): readonly Change[] =>
        n < 9 ? complete(job, n % 3 === 0 ? {} : { result: n }) : failAndRetry(job, 60_000)
      const receipt = await d.commit({ groups: held.map((job, n) => [noteOf(job, n), ...settle(job, n)]) })
      same(
        receipt.groups.map(({ ok }) => ok),
        held.map((_, n) => n !== 3),
        'all except the one whose lease was given up',
      )
      const now = await h.store.get(held.map(({ id }) => id))
      same(
        now.map((job) => [job?.state, job?.memo, job?.progress, job?.result]),
        held.map((_, n) =>
          n === 3
            ? ['waiting', undefined, undefined, undefined]
            : [
                n < 9 ? 'completed' : 'delayed',
                `{"n":${n}}`,
                n % 4 === 1 ? `${n}` : undefined,
                n < 9 && n % 3 !== 0 ? `${n}` : undefined,
              ],
        ),
        'each has its new state, and its own note',
      )
      const events = await listener.received(d)
      same(
        held.map(({ id }) => typesOf(events, id).slice(2)),
        held.map((_, n) => {
          if (n === 3) return ['waiting']
          const noted = n % 4 === 1 ? ['progress', 'phase'] : ['phase']
          return [...noted, ...(n < 9 ? ['completed'] : ['retrying', 'delayed'])]
        }),
        'the events of notes come before those of the settlement',
      )
      const [tally] = await h.store.tally(['mill'])
      same(tally?.lifetime.completed, 8, 'all of them are counted')
    })
  },

  'a signal is neither counted nor claimed, and its end releases the jobs that wait for it': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.land(insert('s', 'approve', { kind: 'signal', run: { in: 60_000 } }), {
      kind: 'move',
      id: held.id,
      fence: held.fence,
      to: 'waiting-children',
      held: true,
      place: 'old',
      why: undefined,
      closesBroken: false,
      waitsFor: [{ on: 's', policy: 'ignore' }],
      set: { attempt: 0 },
    })
    same((await d.job('s')).kind, 'signal', 'it is stored as what it is')
    const [tally] = await h.store.tally(['mill'])
    same(Object.keys(tally?.names ?? {}), ['work'], 'it is not counted')
    same(
      (await h.store.find({ queue: 'mill', kind: 'job' })).items.map(({ id }) => id),
      [held.id],
      'nor listed as a job',
    )
    await h.advance(LEASE)
    same((await d.claim(5)).length, 0, 'nor claimed')
    const signal = await d.job('s')
    await d.land(
      {
        kind: 'move',
        id: 's',
        fence: signal.fence,
        to: 'completed',
        held: false,
        place: 'old',
        why: undefined,
        closesBroken: false,
        set: { result: '"yes"' },
      },
      { kind: 'release', chain: 's', outcome: 'completed' },
    )
    const again = await d.claimOne()
    same([again.id, again.attempt], [held.id, 1], 'the job that waited is released in the same commit')
    same((await d.edges(again))[0]?.result, '"yes"', 'with the data of the signal')
    same((await h.store.tally(['mill']))[0]?.lifetime.completed, 0, 'its end is not counted')
  },
})
