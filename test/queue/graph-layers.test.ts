import { expect, test } from 'vitest'
import { criticalPath, layersOf } from '../../src/queue/graph-layers.js'

const nodes = (...ids: string[]): { id: string; ran: number }[] => ids.map((id) => ({ id, ran: 0 }))
const edge = (from: string, to: string): { from: string; to: string } => ({ from, to })

test('a node is one layer behind the last of those before it', () => {
  const { layer, order } = layersOf(nodes('d', 'c', 'b', 'a'), [
    edge('a', 'b'),
    edge('b', 'c'),
    edge('a', 'c'),
    edge('c', 'd'),
  ])
  expect(Object.fromEntries(layer)).toEqual({ a: 0, b: 1, c: 2, d: 3 })
  expect(order).toEqual(['a', 'b', 'c', 'd'])
})

test('a cycle has layers, too, and each node has one', () => {
  const { layer, order } = layersOf(nodes('a', 'b', 'c', 'x'), [
    edge('a', 'b'),
    edge('b', 'c'),
    edge('c', 'a'),
    edge('x', 'b'),
  ])
  expect(Object.fromEntries(layer)).toEqual({ a: 0, b: 1, c: 2, x: 0 })
  expect(order).toHaveLength(4)
})

test('the critical path is the one whose jobs ran longest, not the one with the most jobs', () => {
  const all = [...nodes('a', 'b', 'c'), { id: 'slow', ran: 90 }, { id: 'end', ran: 5 }]
  const edges = [edge('a', 'b'), edge('b', 'c'), edge('c', 'end'), edge('a', 'slow'), edge('slow', 'end')]
  const { order } = layersOf(all, edges)
  expect(criticalPath(all, edges, order)).toEqual({ path: ['a', 'slow', 'end'], time: 95 })
  const even = nodes('a', 'b', 'c')
  const links = [edge('a', 'b'), edge('b', 'c'), edge('a', 'c')]
  expect(criticalPath(even, links, layersOf(even, links).order).path).toEqual(['a', 'b', 'c'])
  expect(criticalPath([], [], [])).toEqual({ path: [], time: 0 })
})
