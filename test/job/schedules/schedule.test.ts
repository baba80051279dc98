// When schedules run: expressions and zones that are refused, daylight saving in both directions, and what was missed.
import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isMissed, latestTime, nextTime, parseTimes, timesFrom } from '../../../src/job/schedules/schedule-times.js'
import type { ScheduleTimes } from '../../../src/job/schedules/schedule-times.js'
import { thrown } from '../../thrown.js'

const refusal = (options: object): { code: string; message: string; details: Record<string, unknown> } =>
  thrown(() => parseTimes(options as ScheduleTimes, 'here')) as never

/** The next moments of an expression in a zone, as the clock on the wall there shows them. */
function wall(cron: string, tz: string, from: string, count: number): readonly string[] {
  const times = timesFrom(
    parseTimes({ cron, tz }, 'here'),
    nextTime(parseTimes({ cron, tz }, 'here'), Date.parse(from), 0),
    count,
  )
  const clock = new Intl.DateTimeFormat('sv', { timeZone: tz, dateStyle: 'short', timeStyle: 'short' })
  return times.map((time) => clock.format(time).slice(5))
}

describe('an expression that is wrong is refused at its field', () => {
  test.each([
    ['60 * * * *', 'minute', 1, '60', '0 to 59'],
    ['* 25 * * *', 'hour', 2, '25', '0 to 23'],
    ['0 0 32 * *', 'day of the month', 3, '32', '1 to 31'],
    ['0 0 0 * *', 'day of the month', 3, '0', '1 to 31'],
    ['0 0 1 13 *', 'month', 4, '13', 'JAN to DEC'],
    ['0 0 1 foo *', 'month', 4, 'foo', 'JAN to DEC'],
    ['0 0 * * 8', 'day of the week', 5, '8', 'SUN to SAT'],
    ['61 * * * * *', 'second', 1, '61', '0 to 59'],
    ['0 0 24 * * *', 'hour', 3, '24', '0 to 23'],
    ['10-5 * * * *', 'minute', 1, '10-5', 'ranges'],
    ['*/0 * * * *', 'minute', 1, '*/0', 'steps'],
    ['1, * * * *', 'minute', 1, '1,', 'lists'],
    ['0 0 * * FRI#6', 'day of the week', 5, 'FRI#6', 'second Friday'],
  ])('%s', (cron, part, position, given, takes) => {
    const { code, message, details } = refusal({ cron })
    expect(code).toBe('INVALID_SCHEDULE')
    expect(details).toMatchObject({ field: 'cron', part, position, given })
    expect(message).toContain(`the ${part} of cron '${cron}', which is field ${position} of`)
    expect(message).toContain(takes)
  })

  test('a step from a number on is shown as it should be', () => {
    expect(refusal({ cron: '5/15 * * * *' }).message).toContain('5-59/15')
  })

  test.each([
    ['* * * *', '4 fields'],
    ['', '0 fields'],
    ['0 0 0 1 1 * 2030', '7 fields'],
    ['2026-01-01T00:00:00Z', '1 field'],
    ['@dayly', "did you mean '@daily'?"],
    ['@reboot', '@hourly'],
  ])('%s', (cron, says) => {
    expect(refusal({ cron })).toMatchObject({ code: 'INVALID_SCHEDULE', message: expect.stringContaining(says) })
  })

  test.each(['0 0 30 2 *', '0 0 31 2,4,6,9,11 *', '0 0 0 30 FEB *'])('%s never comes', (cron) => {
    expect(refusal({ cron })).toMatchObject({
      code: 'INVALID_SCHEDULE',
      message: expect.stringContaining('never comes'),
    })
  })

  test('29 February comes, and so do 30 February or any Monday', () => {
    expect(wall('0 0 29 2 *', 'UTC', '2026-01-01T00:00:00Z', 2)).toEqual(['02-29 00:00', '02-29 00:00'])
    expect(wall('0 0 30 2 1', 'UTC', '2026-01-01T00:00:00Z', 1)).toEqual(['02-02 00:00'])
  })

  test('nicknames are spelled out', () => {
    expect(parseTimes({ cron: ' @Daily ' }, 'here')).toEqual({
      cron: '0 0 * * *',
      tz: 'UTC',
      catchUp: 'one',
      overlap: 'skip',
    })
  })
})

describe('what else is wrong is refused at its option', () => {
  test.each([
    [{ cron: '* * * * *', tz: 'Europe/Berln' }, 'tz', "did you mean 'Europe/Berlin'?"],
    [{ cron: '* * * * *', tz: '+02:00' }, 'tz', 'no time zone'],
    [{ cron: '* * * * *', tz: '' }, 'tz', 'such as'],
    [{ every: '1m', tz: 'UTC' }, 'tz', 'goes with cron'],
    [{}, 'cron', 'give cron or every'],
    [{ cron: '* * * * *', every: '1m' }, 'cron', 'not both'],
    [{ cron: 5 }, 'cron', 'must be text'],
    [{ every: 0 }, 'every', 'longer than 0'],
    [{ every: '1m', limit: 0 }, 'limit', 'from 1 up'],
    [{ every: '1m', limit: 1.5 }, 'limit', 'from 1 up'],
    [{ every: '1m', catchUp: 'on' }, 'catchUp', "did you mean 'one'?"],
    [{ every: '1m', overlap: 'no' }, 'overlap', "'skip', 'allow'"],
    [{ every: '1m', start: new Date(NaN) }, 'start', 'valid Date'],
    [{ every: '1m', end: 'soon' }, 'end', 'valid Date'],
    [{ every: '1m', start: 2000, end: 1000 }, 'end', 'before start'],
  ])('%j', (options, field, says) => {
    expect(refusal(options)).toMatchObject({
      code: 'INVALID_SCHEDULE',
      details: { field },
      message: expect.stringContaining(says),
    })
  })

  test('a distance that cannot be read is refused as any duration', () => {
    expect(refusal({ every: 'soon' }).code).toBe('INVALID_DURATION')
  })

  test('runs that make up for all missed times may overlap, unless overlap is given', () => {
    expect(parseTimes({ every: 1, catchUp: 'all' }, 'here').overlap).toBe('allow')
    expect(parseTimes({ every: 1, catchUp: 'all', overlap: 'skip' }, 'here').overlap).toBe('skip')
  })
})

/** Each zone: the night on which an hour (or half of one) is missing, and the one on which it comes twice. */
const zones = [
  { tz: 'Europe/Berlin', gap: '03-29', missing: '30 2', at: '03:00', twice: '10-25', doubled: '30 2', shown: '02:30' },
  {
    tz: 'America/New_York',
    gap: '03-08',
    missing: '30 2',
    at: '03:00',
    twice: '11-01',
    doubled: '30 1',
    shown: '01:30',
  },
  {
    tz: 'Australia/Lord_Howe',
    gap: '10-04',
    missing: '15 2',
    at: '02:30',
    twice: '04-05',
    doubled: '45 1',
    shown: '01:45',
  },
  { tz: 'Asia/Beirut', gap: '03-29', missing: '0 0', at: '01:00', twice: '10-24', doubled: '30 23', shown: '23:30' },
] as const

const dayBefore = (day: string): string => {
  const noon = Date.parse(`2026-${day}T12:00:00Z`)
  return new Date(noon - 60 * 3_600_000).toISOString()
}
const days = (day: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, at) => {
    return new Date(Date.parse(`2026-${day}T12:00:00Z`) + (at - 1) * 86_400_000).toISOString().slice(5, 10)
  })

describe.each(zones)('daylight saving in $tz', ({ tz, gap, missing, at, twice, doubled, shown }) => {
  test('a daily time that is missing on one day runs when the clock has jumped, once', () => {
    const usual = missing
      .split(' ')
      .toReversed()
      .map((part) => part.padStart(2, '0'))
      .join(':')
    const seen = wall(`${missing} * * *`, tz, dayBefore(gap), 5).filter((each) =>
      days(gap, 3).includes(each.slice(0, 5)),
    )
    expect(seen).toContain(`${gap} ${at}`)
    expect(seen.filter((each) => each.startsWith(gap))).toHaveLength(1)
    expect(seen.every((each) => each.startsWith(gap) || each.endsWith(usual))).toBe(true)
  })

  test('a daily time that comes twice on one day runs once', () => {
    const seen = wall(`${doubled} * * *`, tz, dayBefore(twice), 5)
    for (const day of days(twice, 3)) expect(seen.filter((each) => each === `${day} ${shown}`)).toHaveLength(1)
  })

  test('one of several times of day is neither skipped nor doubled', () => {
    const [minute, hour] = missing.split(' ')
    const both = wall(`${minute} ${hour},14 * * *`, tz, dayBefore(gap), 10)
    expect(both.filter((each) => each.startsWith(gap))).toHaveLength(2)
    const [again, then] = doubled.split(' ')
    const once = wall(`${again} ${then},14 * * *`, tz, dayBefore(twice), 10)
    expect(once.filter((each) => each === `${twice} ${shown}`)).toHaveLength(1)
  })

  test.each([gap, twice])('every 15 minutes goes on through the night of %s', (day) => {
    const timing = parseTimes({ cron: '*/15 * * * *', tz }, 'here')
    const from = Date.parse(dayBefore(day))
    const times = timesFrom(timing, nextTime(timing, from, 0), 4 * 96)
    for (const [each, time] of times.entries()) expect(time).toBe(times[0]! + each * 900_000)
  })

  test.each([gap, twice])('an hourly run comes with every hour that the clock shows in the night of %s', (day) => {
    const timing = parseTimes({ cron: '0 * * * *', tz }, 'here')
    const from = Date.parse(dayBefore(day))
    const times = timesFrom(timing, nextTime(timing, from, 0), 96)
    const minutes = new Intl.DateTimeFormat('en', { timeZone: tz, minute: 'numeric' })
    const full: number[] = []
    for (let time = times[0]!; full.length < times.length; time += 900_000) {
      if (minutes.format(time) === '0') full.push(time)
    }
    expect(times).toEqual(full)
  })
})

test('what runs at equal distances does not know of daylight saving, and does not drift', () => {
  const start = Date.parse('2026-03-28T00:00:00Z')
  const timing = parseTimes({ every: '6h', start }, 'here')
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 10_000_000_000 }), (later) => {
      const next = nextTime(timing, start + later, 0)!
      expect((next - start) % 21_600_000).toBe(0)
      expect(next).toBeGreaterThan(start + later)
      expect(next).toBeLessThanOrEqual(start + later + 21_600_000)
    }),
  )
})

test('a start is the first time, and an end the last', () => {
  const timing = parseTimes({ every: 1000, start: 10_000, end: 12_000 }, 'here')
  expect(timesFrom(timing, nextTime(timing, 0, 0), 9)).toEqual([10_000, 11_000, 12_000])
  const cron = parseTimes({ cron: '* * * * * *', start: 10_000, end: 12_000 }, 'here')
  expect(timesFrom(cron, nextTime(cron, 0, 0), 9)).toEqual([10_000, 11_000, 12_000])
})

const timings = fc.oneof(
  fc
    .constantFrom('* * * * * *', '*/15 * * * *', '0 3 * * *', '30 2,14 * * *', '0 0 29 2 *', '* * * 3 *')
    .chain((cron) => fc.constantFrom(...zones.map(({ tz }) => tz)).map((tz) => ({ cron, tz }))),
  fc.integer({ min: 1, max: 100_000_000 }).map((every) => ({ every })),
)
const moments = fc.integer({ min: Date.parse('2025-01-01'), max: Date.parse('2027-01-01') })

test('the next time lies ahead, and none is passed over on the way to it', () => {
  fc.assert(
    fc.property(timings, moments, fc.double({ min: 0, max: 1, noNaN: true }), (options, after, part) => {
      const timing = parseTimes(options, 'here')
      const next = nextTime(timing, after, after)!
      expect(next).toBeGreaterThan(after)
      const between = after + Math.floor((next - after) * part)
      expect(nextTime(timing, Math.min(between, next - 1), after)).toBe(next)
    }),
    { numRuns: 300 },
  )
})

test('the latest time that has come is found, however many came before it', () => {
  fc.assert(
    fc.property(timings, moments, fc.integer({ min: 0, max: 40_000_000_000 }), (options, from, later) => {
      const timing = parseTimes(options, 'here')
      const first = nextTime(timing, from, from)!
      const now = first + later
      const latest = latestTime(timing, first, now)
      expect(latest).toBeLessThanOrEqual(now)
      expect(nextTime(timing, latest, first)).toBeGreaterThan(now)
      expect(nextTime(timing, latest - 1, first)).toBe(latest)
    }),
    { numRuns: 300 },
  )
})

test('the latest before an end that is long over is found as well', () => {
  const end = Date.parse('2026-01-01T00:00:10Z')
  const timing = parseTimes({ cron: '* * * * * *', end }, 'here')
  expect(latestTime(timing, Date.parse('2025-01-01T00:00:00Z'), end + 1e11)).toBe(end)
})

test('a time is missed when it is late by a minute, or by a quarter of the way to the next', () => {
  const daily = parseTimes({ every: '1d', start: 0 }, 'here')
  expect(isMissed(daily, 0, 60_000)).toBe(false)
  expect(isMissed(daily, 0, 60_001)).toBe(true)
  const often = parseTimes({ every: '1m', start: 0 }, 'here')
  expect(isMissed(often, 0, 15_000)).toBe(false)
  expect(isMissed(often, 0, 15_001)).toBe(true)
})
