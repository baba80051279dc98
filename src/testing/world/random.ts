// testing/world/random.ts: seeded random numbers, in streams forked by label: a draw in one stream changes no other.

/** A stream of random numbers that is the same for the same label, on every platform. */
export class Random {
  readonly #label: string
  #a: number
  #b: number
  #c: number
  #count = 1

  constructor(label: string) {
    this.#label = label
    const [a, b, c] = hash(label)
    this.#a = a
    this.#b = b
    this.#c = c
    for (let round = 0; round < 12; round++) this.next()
  }

  /** An independent stream: draws from it change no other stream. */
  fork(label: string): Random {
    return new Random(`${this.#label}/${label}`)
  }

  /** A number in [0, 1), by sfc32. */
  next(): number {
    const sum = (this.#a + this.#b + this.#count++) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum
    return (sum >>> 0) / 2 ** 32
  }

  /** An integer from `least` to `most`, both included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1))
  }

  /** True with this probability. */
  chance(probability: number): boolean {
    return this.next() < probability
  }

  /** An item of a list, which must not be empty. */
  pick<T>(list: readonly T[]): T {
    const found = list[Math.floor(this.next() * list.length)]
    if (found === undefined && list.length === 0) throw new RangeError('There is nothing to pick from.')
    return found as T
  }

  /** A name, with a probability proportional to its weight. */
  weigh<T extends string>(weights: Readonly<Record<T, number>>): T {
    const entries = Object.entries(weights) as [T, number][]
    let left = this.next() * entries.reduce((sum, [, weight]) => sum + weight, 0)
    for (const [name, weight] of entries) if ((left -= weight) < 0) return name
    return entries.at(-1)![0]
  }
}

/** Three 32-bit words from a text, by the mixing steps of MurmurHash3. */
function hash(text: string): readonly [number, number, number] {
  let a = 0x9e3779b9
  let b = 0x243f6a88
  let c = 0xb7e15162
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    a = Math.imul(a ^ code, 0x85ebca6b)
    b = Math.imul(b ^ code, 0xc2b2ae35)
    c = Math.imul(c ^ code, 0x27d4eb2f)
    a = (a << 13) | (a >>> 19)
    b = (b << 17) | (b >>> 15)
    c = (c << 5) | (c >>> 27)
  }
  return [a ^ (b >>> 3), b ^ (c >>> 5), c ^ (a >>> 7)]
}
