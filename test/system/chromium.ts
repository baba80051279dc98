// A real headless Chromium, controlled over the pipes of its DevTools.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'

/** A page in the browser. */
interface Page {
  /** Evaluates an expression in the page, and waits for what it promises. */
  evaluate<T>(expression: string): Promise<T>
  /** Waits until an expression is true there: looked at whenever the page changes. */
  until(expression: string): Promise<void>
}

/** A browser. */
export interface Browser {
  open(url: string): Promise<Page>
  close(): Promise<void>
}

interface Answer {
  readonly id?: number
  readonly result?: { targetId?: string; sessionId?: string; result?: { value?: unknown }; exceptionDetails?: object }
  readonly error?: { message: string }
}

/** Starts Debian's Chromium with a profile of its own. */
export function startChromium(): Browser {
  const profile = mkdtempSync(join(tmpdir(), 'millrace-chromium-'))
  const child = spawn(
    'chromium',
    ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', `--user-data-dir=${profile}`],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] },
  )
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const [, , , input, output] = child.stdio as [null, null, null, Writable, Readable]
  const waiting = new Map<number, { resolve: (answer: Answer) => void; reject: (error: Error) => void }>()
  let sent = 0
  let text = ''
  output.on('data', (chunk: Buffer) => {
    const messages = (text + chunk.toString()).split('\0')
    text = messages.pop()!
    for (const message of messages) {
      const answer = JSON.parse(message) as Answer
      const waiter = answer.id === undefined ? undefined : waiting.get(answer.id)
      waiting.delete(answer.id ?? 0)
      if (answer.error === undefined) waiter?.resolve(answer)
      else waiter?.reject(new Error(answer.error.message))
    }
  })
  const lost = (): void => {
    for (const { reject } of waiting.values()) reject(new Error('Chromium has ended.'))
    waiting.clear()
  }
  child.once('error', lost)
  child.once('close', lost)
  const call = (method: string, params: object, sessionId?: string): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const id = ++sent
      waiting.set(id, { resolve, reject })
      input.write(`${JSON.stringify({ id, method, params, ...(sessionId !== undefined && { sessionId }) })}\0`)
    })

  return {
    open: async (url) => {
      const target = await call('Target.createTarget', { url: 'about:blank' })
      const attached = await call('Target.attachToTarget', { targetId: target.result!.targetId, flatten: true })
      const session = attached.result!.sessionId!
      await call('Page.enable', {}, session)
      await call('Page.navigate', { url }, session)
      const evaluate = async <T>(expression: string): Promise<T> => {
        const { result } = await call(
          'Runtime.evaluate',
          { expression, awaitPromise: true, returnByValue: true },
          session,
        )
        if (result?.exceptionDetails) throw new Error(JSON.stringify(result.exceptionDetails))
        return result?.result?.value as T
      }
      const until = (expression: string): Promise<void> =>
        evaluate(`new Promise((resolve) => {
          const look = () => {
            if (!(${expression})) return
            changes.disconnect()
            resolve()
          }
          const changes = new MutationObserver(look)
          changes.observe(document, { subtree: true, childList: true, attributes: true, characterData: true })
          look()
        })`)
      return { evaluate, until }
    },
    close: async () => {
      child.kill('SIGKILL')
      await ended
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
