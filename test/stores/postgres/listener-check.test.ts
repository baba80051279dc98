// How the listening connection finds out whether it receives: on a virtual clock, with drivers made for it.
import { describe, expect, test } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { Call, Driver, NotificationListener } from '../../../src/stores/postgres/drivers/driver.js'
import { ListenConnection } from '../../../src/stores/postgres/events/listen-connection.js'

/** What a driver does here: its calls, and those of the connection that listens. */
interface Line {
  /** A payload is sent, on the listening connection or on another. */
  readonly sent: (word: string, ear: NotificationListener, here: boolean) => Promise<void> | void
  /** The connection that listens is asked something else. */
  readonly probed?: (ear: NotificationListener) => Promise<void> | void
}

/** A wire on such a driver, and what it has sent and done so far; reading the numbers resets them. */
function wired(line: Line) {
  const clock = virtualClock()
  let ear: NotificationListener | undefined
  let count = { looks: 0, missed: 0, listens: 0, sent: 0, probes: 0 }
  const received: string[] = []
  const ask = async (call: Call, here: boolean): Promise<null> => {
    const word = call.values[1]
    if (here) count.probes++
    else count.sent++
    if (typeof word === 'string') await line.sent(word, ear!, here)
    else await line.probed?.(ear!)
    return null
  }
  const driver = {
    call: (call: Call) => ask(call, false),
    listen: async (_: string, given: NotificationListener) => {
      count.listens++
      ear = given
      return { call: (call: Call) => ask(call, true), close: async () => {} }
    },
  } as unknown as Driver
  const wire = new ListenConnection(driver, 'channel', clock.runtime, {
    notified: (payload) => void received.push(payload),
    look: () => void count.looks++,
    missed: () => void count.missed++,
  })
  return {
    wire,
    clock,
    received,
    notify: (payload: string) => ear!.notified(payload),
    after: async (time: string) => {
      await clock.advance(time)
      const all = count
      count = { looks: 0, missed: 0, listens: 0, sent: 0, probes: 0 }
      return all
    },
  }
}

/** A connection that is a session of its own: what is sent comes back. */
const direct = (word: string, ear: NotificationListener): void => ear.notified(word)

describe('the connection that listens', () => {
  test('is trusted when it receives what another connection sends', async () => {
    const { after, notify, received } = wired({ sent: direct })
    expect(await after('58s')).toEqual({ looks: 0, missed: 0, listens: 1, sent: 12, probes: 0 })
    notify('something')
    expect(received).toEqual(['something'])
  })

  test('is not trusted behind a pooler, which forwards notices of its backend only during a query', async () => {
    const { wire, clock, after } = wired({ sent: (word, ear, here) => (here ? ear.notified(word) : undefined) })
    const { looks, missed, probes } = await after('1m')
    expect({ missed, probes }).toEqual({ missed: 0, probes: 9 })
    expect(looks).toBe(60)
    await clock.until(wire.close())
  })

  test('is not asked anything while a word is waited for, and a word that comes late does not count', async () => {
    const late: (() => void)[] = []
    let answer = (): void => {}
    const { after, notify } = wired({
      sent: (word, ear) => void late.push(() => ear.notified(word)),
      probed: () => new Promise((resolve) => void (answer = resolve)),
    })
    expect(await after('1999ms')).toMatchObject({ looks: 1, sent: 1, probes: 0 })
    expect(await after('1ms')).toMatchObject({ looks: 1, probes: 1 })
    late[0]!() // while it is asked
    expect(await after('20s')).toMatchObject({ looks: 20, missed: 0, sent: 0 })
    answer()
    await after('4s')
    late[0]!() // an old one
    notify('echo of another')
    expect(await after('2s')).toMatchObject({ looks: 2, missed: 0, sent: 1 })
    late[1]!()
    expect(await after('2s')).toMatchObject({ looks: 0, missed: 1, probes: 0 })
  })

  test.each([
    ['fail', () => Promise.reject(new Error('gone'))],
    ['are not answered for long', (wait: () => Promise<void>) => wait()],
  ])('is looked after and believed in again, though calls on others %s for a while', async (_, refuse) => {
    let away = false
    const scene = wired({
      sent: (word, ear) => (away ? refuse(() => delayed(scene.clock.runtime.timer)) : direct(word, ear)),
    })
    await scene.after('1s')
    away = true
    const during = await scene.after('1m')
    expect(during.looks).toBeGreaterThan(50)
    expect(during.probes).toBeGreaterThan(2)
    expect(during).toMatchObject({ missed: 0, listens: 0 })
    away = false
    expect(await scene.after('30s')).toMatchObject({ missed: 1, listens: 0 })
    expect(await scene.after('1m')).toMatchObject({ looks: 0, missed: 0, sent: 12, probes: 0 })
  })

  test('is made anew when it does not answer', async () => {
    let deaf = false
    const { after } = wired({
      sent: (word, ear) => (deaf ? undefined : direct(word, ear)),
      probed: (ear) => {
        deaf = false
        ear.lost(new Error('half open'))
        return Promise.reject(new Error('half open'))
      },
    })
    await after('1s')
    deaf = true
    expect(await after('10s')).toMatchObject({ listens: 1, missed: 1, probes: 1 })
    expect(await after('1m')).toMatchObject({ listens: 0, looks: 0, missed: 0, probes: 0 })
  })

  test('is closed when the check ends, and then sends nothing any more', async () => {
    let end = (): void => {}
    const { wire, clock, after } = wired({ sent: () => new Promise((resolve) => void (end = resolve)) })
    await clock.settle()
    let closed = false
    const closing = wire.close().then(() => (closed = true))
    expect(await after('1m')).toEqual({ looks: 0, missed: 0, listens: 1, sent: 1, probes: 0 })
    expect(closed).toBe(false)
    end()
    await closing
    expect(await after('1m')).toMatchObject({ looks: 0, sent: 0, probes: 0 })
  })
})

/** Longer than a driver waits for a connection and for an answer. */
function delayed(timer: (delay: number, work: () => void) => unknown): Promise<void> {
  return new Promise((_, reject) => void timer(20_000, () => reject(new Error('No answer.'))))
}
