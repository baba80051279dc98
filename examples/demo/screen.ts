// examples/demo/screen.ts: shows the board. It redraws in a terminal, and prints line by line elsewhere.
import type { Board, Line } from './board.js'
import { kinds } from './jobs.js'

/** Where the demo is shown. */
export interface Screen {
  print(line: Line): void
  /** Draws for the last time; later output appears below. */
  close(): void
}

/** What the screen shows beside the board. */
export interface Scene {
  readonly title: string
  readonly board: Board
  /** One line on each worker. */
  workers(): string[]
}

const colours = { plain: 0, good: 32, bad: 31, note: 33, bold: 1, dim: 2 }
const LEAST_ROWS = 24
const REDRAW_EVERY = 80

/** Opens a screen on a stream. */
export function openScreen(out: NodeJS.WriteStream, scene: Scene): Screen {
  const began = performance.now()
  const stamped = ({ text }: Line): string => `${seconds(began).padStart(7)}  ${text}`
  const fits = out.isTTY && process.env['TERM'] !== 'dumb' && out.rows >= LEAST_ROWS
  if (fits) return drawn(out, scene, began, stamped)
  out.write(`${scene.title}\n`)
  return { print: (line) => void out.write(`${stamped(line)}\n`), close: () => {} }
}

function drawn(out: NodeJS.WriteStream, scene: Scene, began: number, stamped: (line: Line) => string): Screen {
  const paint = painter()
  const story: string[] = []
  let drawnLines = 0

  const frame = (): string[] => {
    const { board, title, workers } = scene
    const jobs = [...board.jobs.values()]
    const width = Math.max(8, Math.min(40, out.columns - 46))
    const row = (name: string, share: number, text: string): string =>
      `  ${name.padEnd(11)}${bar(share, width, paint)}  ${text}`
    const top = [
      paint('bold', title),
      '',
      ...kinds.map((kind) => {
        const all = jobs.filter((job) => job.kind === kind)
        const done = all.filter(({ state }) => state === 'completed').length
        return row(kind, done / Math.max(1, all.length), `${done} of ${all.length}`)
      }),
      '',
      ...jobs
        .filter(({ kind }) => kind === 'film')
        .map(({ id, percent, state, worker, attempt }) => {
          const who = state !== 'active' ? state : worker === board.killed ? `${worker}, killed` : worker
          const again = attempt > 1 ? `, attempt ${attempt}` : ''
          return row(id, percent / 100, `${String(percent).padStart(3)} %  ${who}${again}`)
        }),
      '',
      ...workers().map((line) => `  ${line}`),
      '',
    ]
    const room = Math.max(1, out.rows - top.length - 2)
    return [...top, ...story.slice(-room), paint('dim', seconds(began).padStart(7))]
  }

  const draw = (): void => {
    const lines = frame().map((line) => `${cut(line, out.columns)}\x1b[K\n`)
    out.write(`${drawnLines > 0 ? `\x1b[${drawnLines}A` : ''}\r${lines.join('')}\x1b[J`)
    drawnLines = lines.length
  }

  const showCursor = (): void => void out.write('\x1b[?25h')
  process.once('exit', showCursor)
  out.write('\x1b[?25l')
  const timer = setInterval(draw, REDRAW_EVERY)
  return {
    // The bars show the rest.
    print: (line) => void (line.tone !== 'plain' && story.push(paint(line.tone, stamped(line)))),
    close: () => {
      if (!process.listeners('exit').includes(showCursor)) return
      process.off('exit', showCursor)
      clearInterval(timer)
      draw()
      showCursor()
    },
  }
}

type Painter = (colour: keyof typeof colours, text: string) => string

function painter(): Painter {
  if ((process.env['NO_COLOR'] ?? '') !== '') return (_colour, text) => text
  return (colour, text) => (colours[colour] === 0 ? text : `\x1b[${colours[colour]}m${text}\x1b[0m`)
}

function bar(share: number, width: number, paint: Painter): string {
  const full = Math.round(share * width)
  return paint(full === width ? 'good' : 'plain', '█'.repeat(full)) + paint('dim', '░'.repeat(width - full))
}

function seconds(since: number): string {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`
}

/** Cuts a line to the width; colours take no space. */
function cut(line: string, columns: number): string {
  let room = columns
  return line.replaceAll(/(\x1b\[\d+m)|[^]/gu, (character, colour: string | undefined) =>
    colour !== undefined || room-- > 0 ? character : '',
  )
}
