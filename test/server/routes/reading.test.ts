// What the reading routes answer: stored text, scope, secrets, pages, searches.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { closing, newWorker } from '../../setup.js'
import { kinds, stores } from '../../stores.js'
import { QUEUE, newWorld } from './world.js'

const newStore = stores()
const params = { queue: QUEUE }

describe('jobs', () => {
  it('come with data as it was stored, down to the last digit', async () => {
    const world = newWorld()
    const id = await world.waiting({ big: 12345678901234, e: 1e21, text: '\u2028"' })
    const { text } = await world.ask('read', 'GET', '/v1/jobs/{id}', { params: { id } })
    expect(text).toContain(`"data":${JSON.stringify({ big: 12345678901234, e: 1e21, text: '\u2028"' })}`)
  })

  it('have their secrets hidden in data, results, progress, errors, logs, steps, attempts and timeline', async () => {
    const world = newWorld()
    const { queue } = world
    newWorker(queue, {
      send: async (_job, ctx) => {
        await ctx.log('using token=hush-log')
        await ctx.step('sign in', () => ({ cookie: 'hush-step' }))
        await ctx.progress({ secret: 'hush-progress' })
        return { apiKey: 'hush-result' }
      },
      fail: async () => {
        throw new Error('refused: password=hush-error')
      },
    })
    const job = await queue.add('send', { password: 'hush-data', to: 'ann' })
    await job.result()
    const failed = await queue.add('fail', null, { attempts: 1 })
    await failed.result().catch(() => {})
    const include = 'logs,steps,history,timeline,explain,edges'
    const answers = [
      await world.ask('read', 'GET', '/v1/jobs/{id}', { params: { id: job.id }, query: { include } }),
      await world.ask('read', 'GET', '/v1/jobs/{id}', { params: { id: failed.id }, query: { include } }),
      await world.ask('read', 'GET', '/v1/queues/{queue}/jobs', { params }),
      await world.ask('read', 'GET', '/v1/queues/{queue}/errors', { params }),
      await world.ask('read', 'GET', '/v1/search', { query: { q: '' } }),
      await world.ask('read', 'GET', '/v1/jobs/{id}/graph', { params: { id: failed.id } }),
    ]
    for (const part of ['logs', 'steps', 'attempts', 'timeline', 'explain']) {
      answers.push(await world.ask('read', 'GET', `/v1/jobs/{id}/${part}`, { params: { id: job.id } }))
      answers.push(await world.ask('read', 'GET', `/v1/jobs/{id}/${part}`, { params: { id: failed.id } }))
    }
    for (const { status, text } of answers) {
      expect(status, text).toBe(200)
      expect(text.match(/.{60}hush.{20}/s)?.[0]).toBeUndefined()
    }
    expect(answers[0]!.body).toMatchObject({
      data: { password: '•••', to: 'ann' },
      result: { apiKey: '•••' },
      logs: [{ line: 'using token=•••' }],
      steps: [{ name: 'sign in', result: { cookie: '•••' } }],
    })
    expect(answers[1]!.body.error.message).toBe('refused: password=•••')
  })

  it('are revealed to an admin alone, and the audit tells who looked', async () => {
    const world = newWorld()
    const id = await world.waiting({ password: 'hush' })
    const asked = { params: { id }, query: { reveal: '1' } }
    expect((await world.ask('read', 'GET', '/v1/jobs/{id}', asked)).status).toBe(403)
    const { body } = await world.ask('admin', 'GET', '/v1/jobs/{id}', asked)
    expect(body.data).toEqual({ password: 'hush' })
    const audit = await world.ask('admin', 'GET', '/v1/audit')
    expect(audit.body.entries).toMatchObject([
      { action: 'reveal', outcome: 'done', by: 'admin', queue: QUEUE, route: 'GET /v1/jobs/{id}', params: { id } },
    ])
    expect(audit.text).not.toContain('hush')
    const readOnly = newWorld({ store: world.store, readOnly: true })
    const refused = await readOnly.ask('admin', 'GET', '/v1/jobs/{id}', asked)
    expect([refused.status, refused.body.code]).toEqual([403, 'READ_ONLY'])
  })

  it('cannot be searched by what is hidden, which the answer would tell', async () => {
    const world = newWorld()
    await world.waiting({ user: { password: 'hush' }, token: { id: 7 } })
    for (const q of ['data.user.password:hush', 'data.token.id:7']) {
      const answer = await world.ask('read', 'GET', '/v1/search', { query: { q } })
      expect([answer.status, answer.body.code], q).toEqual([403, 'FORBIDDEN'])
    }
    const search = JSON.stringify({ 'data.user.password': 'hush' })
    const list = await world.ask('read', 'GET', '/v1/queues/{queue}/jobs', { params, query: { search } })
    expect(list.status).toBe(403)
    const revealed = await world.ask('admin', 'GET', '/v1/search', {
      query: { q: 'data.user.password:hush', reveal: '1' },
    })
    expect(revealed.body.jobs).toHaveLength(1)
  })

  it('leave out what is longer than asked for, and show how it begins', async () => {
    const world = newWorld()
    const id = await world.waiting({ text: '😀'.repeat(500) })
    const { body } = await world.ask('read', 'GET', '/v1/jobs/{id}', { params: { id }, query: { cut: '100' } })
    expect(body.data).toBeUndefined()
    expect(body.cut.data.length).toBe(JSON.stringify({ text: '😀'.repeat(500) }).length)
    expect(body.cut.data.start.isWellFormed()).toBe(true)
    const whole = await world.ask('read', 'GET', '/v1/jobs/{id}', { params: { id }, query: { cut: '5000' } })
    expect(whole.body.data.text).toHaveLength(1000)
  })

  it('are listed by page, filter and field', async () => {
    const world = newWorld()
    for (let n = 0; n < 5; n++) await world.queue.add('send', { n }, { tags: [n % 2 === 0 ? 'even' : 'odd'] })
    const query = { tags: 'even', order: 'newest', limit: '2', fields: 'id,data' }
    const first = await world.ask('read', 'GET', '/v1/queues/{queue}/jobs', { params, query })
    expect(first.body.jobs.map(({ data }: { data: object }) => data)).toEqual([{ n: 4 }, { n: 2 }])
    expect(Object.keys(first.body.jobs[0])).toEqual(['id', 'data'])
    const next = await world.ask('read', 'GET', '/v1/queues/{queue}/jobs', {
      params,
      query: { ...query, cursor: first.body.cursor },
    })
    expect(next.body.jobs.map(({ data }: { data: object }) => data)).toEqual([{ n: 0 }])
    const other = await world.ask('read', 'GET', '/v1/queues/{queue}/jobs', {
      params,
      query: { cursor: first.body.cursor },
    })
    expect([other.status, other.body.code]).toEqual([400, 'INVALID_CURSOR'])
  })

  it('of a page are bounded in bytes', async () => {
    const world = newWorld({ limits: { body: 50_000_000 } })
    const big = new Queue(QUEUE, { store: world.store, logger: false, maxDataBytes: 4_000_000 })
    closing(big)
    for (let n = 0; n < 6; n++) await big.add('send', 'x'.repeat(3_000_000))
    const { text, body } = await world.ask('read', 'GET', '/v1/queues/{queue}/jobs', {
      params,
      query: { limit: '500' },
    })
    expect(body.jobs.length).toBeLessThan(6)
    expect(body.cursor).toBeDefined()
    expect(text.length).toBeLessThan(13_000_000)
  })
})

describe('scope', () => {
  it('hides jobs, queues, workers, metrics, schedules, searches and graphs of other queues', async () => {
    const world = newWorld()
    const other = closing(new Queue('other', { store: world.store, logger: false }))
    newWorker(other, async () => {}, { workerName: 'elsewhere' })
    const hidden = await other.add('secret-name', { to: 'hidden-data' }, { delay: '1h' })
    await other.schedule('hidden-key', { name: 'secret-name', every: '1h' })
    const own = await world.queue.add('send', null, { after: [hidden.id] })
    const answers = [
      await world.ask('read', 'GET', '/v1/queues'),
      await world.ask('read', 'GET', '/metrics'),
      await world.ask('read', 'GET', '/v1/workers', { query: { running: '1' } }),
      await world.ask('read', 'GET', '/v1/schedules'),
      await world.ask('read', 'GET', '/v1/search', { query: { q: '' } }),
      await world.ask('read', 'GET', '/v1/jobs/{id}/graph', { params: { id: own.id } }),
    ]
    for (const { status, text } of answers) {
      expect(status).toBe(200)
      expect(text).not.toMatch(/"other"|secret-name|hidden-data|hidden-key|elsewhere/)
    }
    expect(answers[5]!.body.nodes).toContainEqual(expect.objectContaining({ id: hidden.id, hidden: true }))
    expect((await world.ask('read', 'GET', '/v1/jobs/{id}', { params: { id: hidden.id } })).status).toBe(404)
    const search = await world.ask('read', 'GET', '/v1/search', { query: { q: 'queue:other' } })
    expect(search.status).toBe(403)
    const all = await world.ask('everybody', 'GET', '/v1/search', { query: { q: 'queue:other' } })
    expect(all.body.jobs).toHaveLength(1)
  })

  it("closes Millrace's own queues to everybody, the audit among them", async () => {
    const world = newWorld()
    await world.ask('everybody', 'POST', '/v1/queues/{queue}/pause', { params })
    const { body } = await world.ask('everybody', 'GET', '/v1/audit')
    const { id } = body.entries[0]
    expect((await world.ask('everybody', 'GET', '/v1/jobs/{id}', { params: { id } })).status).toBe(404)
    expect((await world.ask('everybody', 'DELETE', '/v1/jobs/{id}', { params: { id } })).status).toBe(404)
    const own = { params: { queue: 'millrace:audit' } }
    expect((await world.ask('everybody', 'GET', '/v1/queues/{queue}/jobs', own)).status).toBe(403)
    const remove = { ...own, body: { all: true } }
    expect((await world.ask('everybody', 'POST', '/v1/queues/{queue}/remove', remove)).status).toBe(403)
    expect((await world.ask('everybody', 'GET', '/v1/search', { query: { q: 'queue:millrace:audit' } })).status).toBe(
      403,
    )
    expect((await world.ask('everybody', 'GET', '/v1/queues')).text).not.toContain('millrace:')
  })

  it('is that of the server as well: a queue that it does not serve is not there', async () => {
    const world = newWorld()
    const id = await world.waiting()
    const narrow = newWorld({ store: world.store, queues: ['other'] })
    expect((await narrow.ask('everybody', 'GET', '/v1/jobs/{id}', { params: { id } })).status).toBe(404)
    expect((await narrow.ask('everybody', 'GET', '/v1/queues/{queue}', { params })).status).toBe(403)
    const { body } = await narrow.ask('everybody', 'GET', '/v1/queues')
    expect(body.queues).toMatchObject([{ queue: 'other', counts: { waiting: 0 } }])
  })
})

describe('what needs attention', () => {
  it('is told with a sentence and a request that helps', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store })
    await world.waiting()
    await clock.advance('30s')
    const first = await world.ask('read', 'GET', '/v1/attention')
    expect(first.body.items).toMatchObject([
      { kind: 'no-worker', level: 'error', name: 'send', remedy: { method: 'GET', path: '/v1/workers' } },
    ])
    await world.queue.pause()
    const { body } = await world.ask('read', 'GET', '/v1/attention')
    expect(body.queues).toBe(1)
    expect(body.items).toMatchObject([
      { kind: 'paused', level: 'warning', remedy: { method: 'POST', path: '/v1/queues/mail/resume' } },
    ])
    const other = await world.ask('stranger', 'GET', '/v1/attention')
    expect(other.body).toMatchObject({ queues: 0, items: [] })
  })
})

describe('search', () => {
  it('understands fields, quotes, ranges and values in data', async () => {
    const world = newWorld()
    const job = await world.queue.add(
      'send mail',
      { user: { id: 7, role: 'not found' } },
      { group: 't7', tags: ['a:b'] },
    )
    await world.queue.add('other', { user: { id: 8 } })
    const ids = async (q: string): Promise<readonly string[]> => {
      const { status, body, text } = await world.ask('read', 'GET', '/v1/search', { query: { q } })
      expect(status, `${q}: ${text}`).toBe(200)
      return body.jobs.map(({ id }: { id: string }) => id)
    }
    for (const q of [
      'name:"send mail"',
      'group:t7',
      'tag:a:b state:waiting,active',
      `id:${job.id}`,
      job.id.slice(0, 36),
      'data.user.id:7',
      'data.user.role:"not found"',
      'name:"send mail" created:<1h',
      'queue:mail group:t7',
    ]) {
      expect(await ids(q), q).toEqual([job.id])
    }
    expect(await ids('created:>1h')).toEqual([])
    expect(await ids('data.user.id:"7"')).toEqual([])
    expect(await ids('')).toHaveLength(2)
  })

  it('says by name what it does not understand', async () => {
    const world = newWorld()
    for (const [q, message] of [
      ['stat:failed', "did you mean 'state'"],
      ['state:gone', 'there is no state'],
      ['group:a group:b', 'group is given twice'],
      ['created:yesterday', 'created is written'],
      ['state:failed '.repeat(31), '30 words'],
    ] as const) {
      const { status, body } = await world.ask('read', 'GET', '/v1/search', { query: { q } })
      expect([status, body.code]).toEqual([400, 'INVALID_REQUEST'])
      expect(body.detail).toContain(message)
    }
  })

  it('says that there may be more where it did not look at everything', async () => {
    const world = newWorld()
    for (let n = 0; n < 4; n++) await world.waiting()
    const some = await world.ask('read', 'GET', '/v1/search', { query: { q: 'state:waiting', limit: '3' } })
    expect([some.body.jobs.length, some.body.complete]).toEqual([3, false])
    const all = await world.ask('read', 'GET', '/v1/search', { query: { q: 'state:waiting', limit: '4' } })
    expect([all.body.jobs.length, all.body.complete]).toEqual([4, true])
  })
})

describe.each(kinds)('on %s', (kind) => {
  it('every reading route answers about a queue with jobs, a worker, a schedule and failures', async () => {
    const store: Store = await newStore(kind)
    const world = newWorld({ store })
    const { queue } = world
    await queue.schedule('nightly', { name: 'send', cron: '0 4 * * *', data: { token: 'x' } })
    newWorker(
      queue,
      { send: async () => 'sent', fail: async () => Promise.reject(new Error('no')) },
      { workerName: 'w1' },
    )
    await (await queue.add('send')).result()
    const failed = await queue.add('fail', null, { attempts: 1 })
    await failed.result().catch(() => {})
    const list = await world.ask('read', 'GET', '/v1/queues')
    expect(list.body.queues).toMatchObject([
      { queue: QUEUE, counts: { completed: 1, failed: 1 }, totals: { added: 2 } },
    ])
    const one = await world.ask('read', 'GET', '/v1/queues/{queue}', { params })
    expect(one.body).toMatchObject({ counts: { failed: 1 }, names: { send: { counts: { completed: 1 } } }, workers: 1 })
    const workers = await world.ask('read', 'GET', '/v1/workers', { query: { running: 'true' } })
    expect(workers.body.workers).toMatchObject([{ workerName: 'w1', queues: [QUEUE], jobs: [] }])
    const errors = await world.ask('read', 'GET', '/v1/queues/{queue}/errors', { params })
    expect(errors.body.errors).toMatchObject([{ count: 1, sample: { id: failed.id, message: 'no' } }])
    const series = await world.ask('read', 'GET', '/v1/queues/{queue}/series', { params })
    expect(series.body.rows.at(-1)).toMatchObject({ added: 2 })
    const schedules = await world.ask('read', 'GET', '/v1/schedules')
    expect(schedules.body.schedules).toMatchObject([{ queue: QUEUE, key: 'nightly', data: { token: '•••' } }])
    expect(schedules.body.schedules[0].next).toHaveLength(5)
    const count = await world.ask('read', 'GET', '/v1/queues/{queue}/count', { params, query: { state: 'failed' } })
    expect(count.body).toEqual({ count: 1, exact: true })
    const metrics = await world.ask('read', 'GET', '/metrics')
    expect(metrics.text).toContain(`millrace_jobs{queue="${QUEUE}",name="send",state="completed"} 1`)
    const graph = await world.ask('read', 'GET', '/v1/jobs/{id}/graph', { params: { id: failed.id } })
    expect(graph.body.nodes).toMatchObject([{ id: failed.id, state: 'failed', error: { message: 'no' } }])
    const found = await world.ask('read', 'GET', '/v1/search', { query: { q: 'state:failed name:fail' } })
    expect(found.body.jobs).toMatchObject([{ id: failed.id }])
  })

  it('schedules of many queues are read by page', async () => {
    const store: Store = await newStore(kind)
    const world = newWorld({ store })
    for (const name of ['a', 'b', 'c']) {
      const queue = closing(new Queue(name, { store, logger: false }))
      for (const key of ['one', 'two']) await queue.schedule(key, { name: 'send', every: '1h' })
      await queue.add('send')
    }
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const query = { limit: '4', ...(cursor !== undefined && { cursor }) }
      const { body } = await world.ask('everybody', 'GET', '/v1/schedules', { query })
      for (const { queue, key } of body.schedules) seen.push(`${queue} ${key}`)
      cursor = body.cursor
    } while (cursor !== undefined)
    expect(seen).toEqual(['a one', 'a two', 'b one', 'b two', 'c one', 'c two'])
    const wrong = await world.ask('everybody', 'GET', '/v1/schedules', { query: { cursor: 'bm8' } })
    expect([wrong.status, wrong.body.code]).toEqual([400, 'INVALID_CURSOR'])
  })
})
