// queue/graph-layers.ts: the layers of a graph of jobs, and the path through it that took the longest.
import type { Millis } from '../job/job.js'

/** A node, as far as this needs it. */
interface LayeredNode {
  readonly id: string
}

/** An edge, as far as this needs it. */
interface DirectedEdge {
  readonly from: string
  readonly to: string
}

/** The layer of each node, and an order in which no edge leads back, unless there are cycles. */
export interface Layers {
  readonly layer: ReadonlyMap<string, number>
  readonly order: readonly string[]
}

/**
 * Puts each node one layer behind the last of those before it. A cycle is cut at the node of it that comes first in
 * `nodes`.
 */
export function layersOf(nodes: readonly LayeredNode[], edges: readonly DirectedEdge[]): Layers {
  const after = new Map<string, string[]>(nodes.map(({ id }) => [id, []]))
  const open = new Map<string, number>(nodes.map(({ id }) => [id, 0]))
  for (const { from, to } of edges) {
    after.get(from)!.push(to)
    open.set(to, open.get(to)! + 1)
  }
  const layer = new Map<string, number>()
  const order: string[] = []
  const ready = nodes.filter(({ id }) => open.get(id) === 0).map(({ id }) => id)
  let next = 0
  const place = (id: string): void => {
    if (order.length === 0 || !layer.has(id)) layer.set(id, layer.get(id) ?? 0)
    order.push(id)
    open.delete(id)
    for (const to of after.get(id)!) {
      const left = open.get(to)
      if (left === undefined) continue // the edge that closes a cycle
      layer.set(to, Math.max(layer.get(to) ?? 0, layer.get(id)! + 1))
      open.set(to, left - 1)
      if (left === 1) ready.push(to)
    }
  }
  while (open.size > 0) {
    const id = ready[next++]
    if (id === undefined) {
      next = ready.length
      place(nodes.find((node) => open.has(node.id))!.id)
    } else if (open.has(id)) place(id)
  }
  return { layer, order }
}

/** The path whose nodes ran longest together; of equal ones, the one with the most nodes. */
export function criticalPath(
  nodes: readonly (LayeredNode & { readonly ran: Millis })[],
  edges: readonly DirectedEdge[],
  order: readonly string[],
): { readonly path: readonly string[]; readonly time: Millis } {
  const ran = new Map(nodes.map((node) => [node.id, node.ran]))
  const position = new Map(order.map((id, at) => [id, at]))
  const before = new Map<string, string[]>()
  for (const { from, to } of edges) {
    if (position.get(from)! >= position.get(to)!) continue
    const list = before.get(to)
    if (list === undefined) before.set(to, [from])
    else list.push(from)
  }
  interface Best {
    readonly time: Millis
    readonly length: number
    readonly via: string | undefined
  }
  const isLonger = (a: Best, b: Best | undefined): boolean =>
    b === undefined || a.time > b.time || (a.time === b.time && a.length > b.length)
  const best = new Map<string, Best>()
  let last: string | undefined
  for (const id of order) {
    let longest: Best = { time: 0, length: 0, via: undefined }
    for (const via of before.get(id) ?? []) {
      const { time, length } = best.get(via)!
      if (isLonger({ time, length, via }, longest)) longest = { time, length, via }
    }
    best.set(id, { time: longest.time + ran.get(id)!, length: longest.length + 1, via: longest.via })
    if (last === undefined || isLonger(best.get(id)!, best.get(last))) last = id
  }
  const path: string[] = []
  for (let id = last; id !== undefined; id = best.get(id)!.via) path.push(id)
  return { path: path.toReversed(), time: last === undefined ? 0 : best.get(last)!.time }
}
