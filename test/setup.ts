// What queue and worker tests share: a store and queues that are closed after each test, and waiting on events.
import { afterEach } from 'vitest'
import { Queue, Worker, shutdown } from 'millrace'
import type {
  AddOptions,
  AnyJobs,
  Closable,
  Declaring,
  EventOf,
  EventType,
  Handlers,
  JobDefinitions,
  QueueOptions,
  WorkerOptions,
} from 'millrace'
import type { Handler, Job, Store } from 'millrace'
import { memory } from 'millrace/memory'

const open: Closable[] = []

afterEach(async () => {
  const parts = open.splice(0).toReversed()
  await shutdown(parts, { timeout: 0, grace: 50 }).catch(() => {})
})

/** Closes it after the test. */
export function closing<T extends Closable>(part: T): T {
  open.push(part)
  return part
}

/** A new memory store. */
export function newStore(): Store {
  return closing(memory())
}

/** A queue on a store of its own, unless one is given. */
export function newQueue<Jobs extends JobDefinitions = AnyJobs>(
  options: Partial<QueueOptions<Jobs>> & { name?: string } = {},
): Queue<Jobs> {
  const { name = 'work', ...rest } = options
  const made = { store: rest.store ?? newStore(), logger: false, ...rest } as QueueOptions<Jobs> & Declaring<Jobs>
  return closing(new Queue<Jobs>(name, made))
}

/** A worker on a queue. */
export function newWorker(
  queue: Queue | Queue<never>,
  handlers: Handler | Handlers<AnyJobs>,
  options: WorkerOptions<AnyJobs, readonly []> = {},
): Worker<AnyJobs, readonly []> {
  return closing(new Worker(queue as Queue, handlers, { logger: false, ...options }))
}

/** A queue or a worker. */
interface EventSource {
  on(type: never, listener: never): () => void
}

/** The next event of a type, or the next that fits. */
export function event<Type extends EventType>(
  from: EventSource,
  type: Type,
  fits: (event: EventOf<Type>) => boolean = () => true,
): Promise<EventOf<Type>> {
  return new Promise((resolve) => {
    const stop = from.on(
      type as never,
      ((each: EventOf<Type>) => {
        if (!fits(each)) return
        stop()
        resolve(each)
      }) as never,
    )
  })
}

/** Adds a job and waits until a worker has it. */
export async function addActive(queue: Queue, name: string, data?: unknown, options?: AddOptions): Promise<Job> {
  const active = event(queue, 'active')
  const added = await queue.add(name, data, options)
  await active
  return added
}

/** A promise and its ends. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void; fail: (error: Error) => void } {
  let open!: (value: T) => void
  let fail!: (error: Error) => void
  const promise = new Promise<T>((resolve, reject) => {
    open = resolve
    fail = reject
  })
  return { promise, open, fail }
}

/** Collects all events of the types given, in order. */
export function collect(from: EventSource, types: readonly EventType[]): string[] {
  const seen: string[] = []
  for (const type of types) from.on(type as never, ((each: { type: string }) => seen.push(each.type)) as never)
  return seen
}

/** Values put in by one side and awaited by the other, in order. */
export function mailbox<T>(): { put: (value: T) => void; next: () => Promise<T> } {
  const values: T[] = []
  const waiting: ((value: T) => void)[] = []
  return {
    put: (value) => {
      const first = waiting.shift()
      if (first === undefined) values.push(value)
      else first(value)
    },
    next: () =>
      values.length > 0 ? Promise.resolve(values.shift()!) : new Promise((resolve) => waiting.push(resolve)),
  }
}
