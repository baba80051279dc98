// Which addresses webhooks may be sent to: never private ones, whatever names and redirects lead there.
import { describe, expect, it, vi } from 'vitest'
import { Queue, Worker } from 'millrace'
import { webhooks } from 'millrace/webhooks'
import type { WebhookOptions } from 'millrace'
import type * as addresses from '../../../src/features/webhooks/addresses.js'
import { redirected } from '../../../src/features/webhooks/post.js'
import { closing, event, newStore } from '../../setup.js'
import { thrown } from '../../thrown.js'
import { receiver } from './receiver.js'
import type { Answering } from './receiver.js'

const { isPublic } = await vi.importActual<typeof addresses>('../../../src/features/webhooks/addresses.js')
/** In these tests, one loopback address counts as public, so that there is a receiver. */
const open = vi.hoisted(() => ({ also: '' }))
vi.mock('../../../src/features/webhooks/addresses.js', async (original) => {
  const actual = await original<typeof addresses>()
  return { isPublic: (address: string) => address === open.also || actual.isPublic(address) }
})

function scene(options: WebhookOptions, also = ''): Queue {
  open.also = also
  const webhook = webhooks({ secret: 'a secret of this test', backoff: { type: 'fixed', delay: 1 }, ...options })
  const queue = closing(new Queue('work', { store: newStore(), logger: false, webhook }))
  closing(new Worker(queue, () => {}, { logger: false }))
  return queue
}

const refused = { attempts: 1, error: { code: 'WEBHOOK_REFUSED' } }

describe('addresses', () => {
  it.each([
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '100.100.100.200',
    '127.0.0.1',
    '127.255.255.254',
    '168.63.129.16',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.8',
    '192.0.2.1',
    '192.168.1.1',
    '198.18.0.1',
    '198.51.100.7',
    '203.0.113.9',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::127.0.0.1',
    '::ffff:127.0.0.1',
    '::ffff:8.8.8.8',
    '::ffff:7f00:1',
    '64:ff9b::7f00:1',
    '64:ff9b::808:808',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::',
    '3fff::1',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'fe80::1%eth0',
    'fec0::1',
    'ff02::1',
    'localhost',
    '',
  ])('%s is not public', (address) => expect(isPublic(address)).toBe(false))

  it.each(['1.1.1.1', '8.8.8.8', '93.184.215.14', '172.32.0.1', '100.128.0.1', '2606:4700::1111', '2a00:1450::5'])(
    '%s is public',
    (address) => expect(isPublic(address)).toBe(true),
  )
})

describe('without allowPrivate', () => {
  it.each([
    ['an address', (port: string) => `http://127.0.0.1:${port}`],
    ['an address in disguise', (port: string) => `http://2130706433:${port}`],
    ['an address of version 6', (port: string) => `http://[::1]:${port}`],
    ['an address of version 4 within one of version 6', (port: string) => `http://[::ffff:127.0.0.1]:${port}`],
    ['a name', (port: string) => `http://localhost:${port}`],
  ])('%s of this machine is refused, for good and without a call', async (_what, url) => {
    const hook = await receiver()
    const queue = scene({ url: url(new URL(hook.url).port) })
    const failed = event(queue, 'webhook-failed')
    const job = await queue.add('a')
    expect(await failed).toMatchObject(refused)
    expect((await queue.get(job.id))!.webhook!.deliveries).toMatchObject([{ error: expect.stringContaining('public') }])
    expect(hook.all).toEqual([])
  })

  it('the error names the way out: once for each host by the worker, and with each job', async () => {
    const warned: { details: object; message: string }[] = []
    const logger = {
      warn: (details: object, message: string) => void warned.push({ details, message }),
      error: () => {},
    }
    open.also = ''
    const webhook = webhooks({ secret: 'a secret of this test' })
    const queue = closing(new Queue('work', { store: newStore(), logger: false, webhook }))
    closing(new Worker(queue, () => {}, { logger }))
    for (const url of ['http://localhost:9/a', 'http://localhost:9/b', 'http://127.0.0.1:9']) {
      const failed = event(queue, 'webhook-failed')
      const job = await queue.add('a', 1, { webhook: url })
      const { error } = await failed
      expect(error.message).toContain('webhooks({ allowPrivate: true })')
      expect((await queue.get(job.id))!.webhook!.deliveries).toMatchObject([{ error: error.message }])
    }
    expect(warned.map(({ details }) => details)).toEqual([
      { host: 'localhost', queue: 'work' },
      { host: '127.0.0.1', queue: 'work' },
    ])
    expect(warned[0]!.message).toContain('allowPrivate')
  })

  it('a lookup that throws or answers nonsense fails the delivery, and nothing else', async () => {
    const queue = scene({
      url: 'http://some.example',
      attempts: 2,
      lookup: () => {
        throw new Error('no resolver')
      },
    })
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject({ attempts: 2, error: { message: expect.stringContaining('no resolver') } })
  })

  it('a name that resolves to a private address is refused, whichever resolver is used', async () => {
    const hook = await receiver()
    const asked: string[] = []
    const queue = scene({
      url: `http://internal.example:${new URL(hook.url).port}`,
      lookup: async (name) => {
        asked.push(name)
        return [{ address: '127.0.0.1', family: 4 }]
      },
    })
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject(refused)
    expect(asked).toEqual(['internal.example'])
    expect(hook.all).toEqual([])
  })

  it('a name that is bound anew between the check and the call leads to the address that was checked', async () => {
    const hook = await receiver()
    let asked = 0
    const url = `http://rebound.example:${new URL(hook.url).port}/`
    // The first answer may be called; every later one is behind the walls.
    const lookup = async () => [{ address: ++asked === 1 ? '127.0.0.1' : '127.0.0.2', family: 4 }]
    const queue = scene({ url, lookup }, '127.0.0.1')
    hook.answers((response) => response.writeHead(500, { connection: 'close' }).end())
    const failed = event(queue, 'webhook-failed')
    const job = await queue.add('a')
    // One lookup for each connection: an address that was checked is not looked up a second time.
    expect(await failed).toMatchObject({ ...refused, attempts: 2 })
    expect(asked).toBe(2)
    expect(hook.all).toHaveLength(1)
    expect(hook.all[0]!.headers.host).toBe(new URL(url).host)
    const { deliveries } = (await queue.get(job.id))!.webhook!
    expect(deliveries.map(({ status }) => status)).toEqual([500, undefined])
  })

  it('of several addresses of a name, only public ones are called', async () => {
    const hook = await receiver()
    const lookup = async () => [
      { address: '10.0.0.1', family: 4 },
      { address: '127.0.0.1', family: 4 },
    ]
    const queue = scene({ url: `http://two.example:${new URL(hook.url).port}`, lookup }, '127.0.0.1')
    await queue.add('a')
    await hook.next()
  })

  it('a redirect to a private address is refused', async () => {
    const [hook, secret] = [await receiver(), await receiver()]
    const queue = scene({ url: hook.url }, '127.0.0.1')
    hook.answers((response) => {
      response.writeHead(307, { location: secret.url.replace('127.0.0.1', '127.0.0.2') }).end()
    })
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject(refused)
    expect(secret.all).toEqual([])
  })
})

describe('redirects', () => {
  const to =
    (location: string, status = 307): Answering =>
    (response) =>
      void response.writeHead(status, { location }).end()

  it('are followed three times, with the same message', async () => {
    const hook = await receiver()
    const queue = scene({ url: hook.url, allowPrivate: true })
    hook.answers(to('/second'), to('third', 308), to('/fourth', 301))
    const delivered = event(queue, 'webhook-delivered')
    await queue.add('a')
    expect(await delivered).toMatchObject({ attempts: 1 })
    expect(hook.all.map(({ path, method }) => `${method} ${path}`)).toEqual([
      'POST /hook',
      'POST /second',
      'POST /third',
      'POST /fourth',
    ])
    expect(new Set(hook.all.map(({ body }) => body)).size).toBe(1)
  })

  it('are not followed a fourth time', async () => {
    const hook = await receiver()
    const queue = scene({ url: hook.url, allowPrivate: true, attempts: 1 })
    hook.answers(...Array.from({ length: 5 }, () => to('/again')))
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject({ error: { message: expect.stringContaining('more than 3 times') } })
    expect(hook.all).toHaveLength(4)
  })

  it.each([
    ['another protocol', 'file:///etc/passwd'],
    ['a password', 'http://ann:pass@127.0.0.1/'],
  ])('to %s are refused, even in development', async (_what, location) => {
    const hook = await receiver()
    const queue = scene({ url: hook.url, allowPrivate: true })
    hook.answers(to(location))
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject(refused)
  })

  it('never lead from https to http', () => {
    const from = new URL('https://example.com/hook')
    expect(thrown(() => redirected(from, 'http://example.com/hook'))).toMatchObject({ code: 'WEBHOOK_REFUSED' })
    expect(redirected(from, '//example.org/other').href).toBe('https://example.org/other')
  })
})
