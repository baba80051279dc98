// conformance/cases/values.ts: cases on values: JSON and names are read exactly as they were written.
import { present, same } from '../check.js'
import { first } from '../driver.js'
import { area } from '../harness.js'
import { complete, json, note, put, failAndRetry } from '../changes.js'

function nested(depth: number): unknown {
  let value: unknown = 'core'
  for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { level: value }
  return value
}

const samples: Readonly<Record<string, unknown>> = {
  'unicode: scripts, emoji, joiners, right-to-left': 'žluťoučký 日本語 👩‍👩‍👧‍👦 עברית \u2028\u2029 e\u0301 é \u{10ffff}',
  'escapes and quotes': 'a"b\'c\\d/e\nf\tg\rh\bi\fj\u0001k\u007f `${x}` $1 ? ?? :name %s -- ;',
  'deep nesting': nested(200),
  'a long string': 'grist ☃ '.repeat(25_000),
  numbers: [0, 1e-7, 5e-324, 2 ** 53 - 1, -(2 ** 53 - 1), 0.1, 123456.789012345, -1.5],
  'the order of keys': { z: 1, a: 2, 10: 3, 9: 4, m: { y: 1, b: 2 } },
  'empty strings, keys, lists and objects': { '': '', list: [], object: {}, deep: [{ '': [] }] },
  'keys that mean something elsewhere': { constructor: 2, toString: 3, $ref: 4, 'a.b': 5, 'a"b': 6 },
  null: null,
  'an empty string': '',
  false: false,
  'text that looks like JSON': '{"a":1}',
}

/** JSON texts that a parser would normalize: they too must be stored byte for byte. */
const texts: readonly string[] = ['{"a":1,"a":2}', '[1.0,1e2,0.10]', '{ "spaced" : [ 1 , 2 ] }', '"\\u0041\\/"']

/** Cases of values. */
export const values = area('values', {
  ...Object.fromEntries(
    Object.entries(samples).map(([what, value]) => [
      `data, progress, results and cells keep ${what}`,
      async (h) => {
        const d = first(h)
        const text = json(value)
        const held = await d.running('work', { data: value })
        same(held.data === text, true, 'data comes back exactly')
        await d.land(note(held, { progress: value }), put('cell', value, 0))
        same((await d.job(held)).progress === text, true, 'progress comes back exactly')
        await d.land(complete(held, { result: value }))
        const done = await d.job(held)
        same([done.result === text, done.data === text], [true, true], 'a result comes back exactly')
        same((await d.cell('cell'))?.value === text, true, 'a cell comes back exactly')
      },
    ]),
  ),

  'JSON text is kept letter by letter': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    for (const text of texts) {
      await d.land({ kind: 'note', id: held.id, fence: held.fence, held: true, progress: text, data: text })
      const job = await d.job(held)
      same([job.progress, job.data], [text, text], 'JSON text is stored unchanged')
    }
  },

  'names, ids, queues, keys and log lines keep their letters': async (h) => {
    const d = first(h)
    const odd = `Ünïcode 'quoted" \\ % _ * 日本 👾 ; --`
    const job = await d.running(`n ${odd}`, { id: `i ${odd}`, queue: `q ${odd}`, dedup: { key: `k ${odd}` } })
    same(
      [job.name, job.id, job.queue, job.dedup?.key],
      [`n ${odd}`, `i ${odd}`, `q ${odd}`, `k ${odd}`],
      'names are kept',
    )
    await d.land(note(job, { logs: [`l ${odd}\n\t`] }), put(`c ${odd}`, 1, 0))
    same((await d.details(job)).logs[0]?.line, `l ${odd}\n\t`, 'log lines are kept')
    same((await d.cell(`c ${odd}`))?.key, `c ${odd}`, 'keys are kept')
    same(Object.keys(await d.counts(`q ${odd}`)), [`n ${odd}`], 'tallies name what they count')
    same((await h.store.find({ queue: `q ${odd}`, names: [`n ${odd}`] })).items.length, 1, 'odd names are found')
  },

  'names differ by case and by accent': async (h) => {
    const d = first(h)
    for (const id of ['job', 'Job', 'JOB', 'jób', 'jo\u0301b']) await d.add(id, { id, queue: id, dedup: { key: id } })
    same(
      (await d.claim(9, { queues: ['Job'] })).map(({ id }) => id),
      ['Job'],
      'a queue is what it is called exactly',
    )
    same((await h.store.find({ names: ['jób'] })).items.length, 1, 'a name is what it is called exactly')
  },

  'what is absent stays absent': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    same([held.data, held.progress, held.result], [undefined, undefined, undefined], 'absent data is not null')
    await d.land(complete(held))
    same((await d.job(held)).result, undefined, 'a handler that returns nothing has no result')
  },

  'an error keeps its name, message, code, stack and causes': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const stack = 'Error: boom\n    at mill.ts:1:1'
    const inner = { name: 'Error', message: 'connect "refused" ☃', code: 'ECONNREFUSED', stack }
    const cause = { name: 'AggregateError', message: '', errors: [inner, { name: 'Error', message: 'two' }] }
    const error = { name: 'Brøken', message: 'two\nlines "quoted" ☃', code: 'E', stack, cause }
    const [change] = failAndRetry(held, 0)
    if (change?.kind === 'move') await d.land({ ...change, set: { ...change.set, error } })
    const job = await d.job(held)
    same(job.error, error, 'an error is kept whole')
    const { startedAt, worker } = held
    const at = present(job.errors[0], 'and the attempt is kept').at
    const attempt = { fence: held.fence, attempt: 1, at, outcome: 'retried', startedAt, worker, runAt: at } as const
    same<unknown>(job.errors, [{ ...error, ...attempt }], 'with its start, its end, its worker and its outcome')
  },
})
