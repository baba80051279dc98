// Drains one database by several processes at once.
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Ledger, account } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import type { Sample } from '../measure/measure.js'
import { millrace } from '../contenders/millrace-postgres.js'

/** A command to a worker process: open a database, start, or stop. */
export type Command =
  | { readonly kind: 'open'; readonly url: string; readonly most: number }
  | { readonly kind: 'run' }
  | { readonly kind: 'stop' }

/** A message of a worker process: it is ready, so many further jobs have ended, or these jobs have run. */
export type Message =
  | { readonly kind: 'ready' }
  | { readonly kind: 'ended'; readonly jobs: number }
  | { readonly kind: 'ran'; readonly keys: Float64Array }

class Member {
  readonly #process: ChildProcess
  readonly #gone: Promise<never>
  #ended: (jobs: number) => void = () => {}

  constructor() {
    const program = fileURLToPath(new URL('many-processes-worker.ts', import.meta.url))
    this.#process = fork(program, [], { serialization: 'advanced' })
    this.#gone = once(this.#process, 'exit').then(([code]) => {
      throw new Error(`A worker process ended with code ${String(code)}.`)
    })
    this.#gone.catch(() => {}) // expected in the end
    this.#process.on('message', (message: Message) => {
      if (message.kind === 'ended') this.#ended(message.jobs)
    })
  }

  async #received<K extends Message['kind']>(kind: K): Promise<Extract<Message, { kind: K }>> {
    const received = new Promise<Extract<Message, { kind: K }>>((resolve) => {
      const listen = (message: Message): void => {
        if (message.kind !== kind) return
        this.#process.off('message', listen)
        resolve(message as Extract<Message, { kind: K }>)
      }
      this.#process.on('message', listen)
    })
    return Promise.race([received, this.#gone])
  }

  #send(command: Command): void {
    this.#process.send(command)
  }

  async open(url: string, most: number): Promise<void> {
    const ready = this.#received('ready')
    this.#send({ kind: 'open', url, most })
    await ready
  }

  run(ended: (jobs: number) => void): Promise<never> {
    this.#ended = ended
    this.#send({ kind: 'run' })
    return this.#gone
  }

  async stop(): Promise<Float64Array> {
    const ran = this.#received('ran')
    this.#send({ kind: 'stop' })
    return (await ran).keys
  }

  async leave(): Promise<void> {
    const gone = once(this.#process, 'exit')
    if (this.#process.exitCode !== null) return
    this.#process.disconnect() // ends the process
    await gone
  }
}

/** Drains a database, which holds `jobs` jobs, by all processes. */
async function drained(members: readonly Member[], url: string, jobs: number): Promise<Sample> {
  await Promise.all(members.map((member) => member.open(url, jobs)))
  let left = jobs
  const start = performance.now()
  await new Promise<void>((resolve, reject) => {
    for (const member of members) {
      member
        .run((ended) => {
          left -= ended
          if (left <= 0) resolve()
        })
        .catch(reject)
    }
    let before = left
    const guard = setInterval(() => {
      if (left <= 0) clearInterval(guard)
      else if (left === before) reject(new Error(`Nothing has ended for 30 s, with ${left} jobs to go.`))
      before = left
    }, 30_000)
    guard.unref()
  })
  const took = performance.now() - start
  const ledger = new Ledger(jobs * 2)
  for (const keys of await Promise.all(members.map((member) => member.stop()))) {
    for (const key of keys) ledger.ran(key)
  }
  const worker = await millrace.createWorker(url, 'full', { ran() {}, ended() {} })
  const { completed } = await worker.counts()
  await worker.close()
  return { figures: { rate: rate(jobs, took) }, ...account(ledger, jobs, completed) }
}

/** Drains a small database first, so that the compiler is warm in every process. The figure is `rate`. */
export async function drainTogether(
  processes: number,
  warm: { readonly url: string; readonly jobs: number },
  full: { readonly url: string; readonly jobs: number },
): Promise<Sample> {
  const members = Array.from({ length: processes }, () => new Member())
  try {
    await drained(members, warm.url, warm.jobs)
    return await drained(members, full.url, full.jobs)
  } finally {
    await Promise.all(members.map((member) => member.leave()))
  }
}
