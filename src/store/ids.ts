// store/ids.ts: UUIDv7 in strictly increasing order, even when the clock steps back.

/** Random bytes are drawn this many at a time: one large draw costs little more than a small one. */
const BLOCK = 4_096
const BYTES_PER_ID = 10
const COUNTER_END = 4_096

const hexDigits = Array.from('0123456789abcdef', (digit) => digit.charCodeAt(0))

/**
 * Makes a source of UUIDv7 (RFC 9562): 48 bits of time, a 12-bit counter, 62 random bits. Each id is greater than the
 * one before it: within a millisecond the counter goes up, and when it is full, or the clock steps back, the time of
 * the ids runs ahead of the clock. `now` returns milliseconds since 1970; `randomBits` fills its argument.
 */
export function createIds(now: () => number, randomBits: (target: Uint8Array) => void): () => string {
  const random = new Uint8Array(BLOCK)
  let used = BLOCK
  let time = -1
  let counter = 0
  // The id is kept as character codes and converted to text in one call, twice as fast as joining pieces.
  const id = Array.from('00000000-0000-7000-8000-000000000000', (character) => character.charCodeAt(0))

  /**
   * Begins a millisecond with a random count in the lower half, so that generators seldom collide and the counter has
   * room.
   */
  const begin = (millis: number, count: number): void => {
    time = millis
    counter = count
    const digits = millis.toString(16).padStart(12, '0')
    for (let i = 0; i < 12; i++) id[i < 8 ? i : i + 1] = digits.charCodeAt(i)
  }

  const writeByte = (index: number, byte: number): void => {
    id[index] = hexDigits[byte >> 4]!
    id[index + 1] = hexDigits[byte & 0x0f]!
  }

  return () => {
    if (used + BYTES_PER_ID > BLOCK) {
      randomBits(random)
      used = 0
    }
    const at = used
    used += BYTES_PER_ID

    const millis = Math.floor(now())
    if (millis > time) begin(millis, ((random[at + 8]! & 0x07) << 8) | random[at + 9]!)
    else if (++counter === COUNTER_END) begin(time + 1, 0)

    id[15] = hexDigits[counter >> 8]!
    writeByte(16, counter & 0xff)
    writeByte(19, 0x80 | (random[at]! & 0x3f)) // the variant
    writeByte(21, random[at + 1]!)
    for (let i = 0; i < 6; i++) writeByte(24 + 2 * i, random[at + 2 + i]!)
    return String.fromCharCode(...id)
  }
}
