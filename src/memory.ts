// memory.ts: the door of the memory store.
export { memory } from './stores/memory.js'
export type { MemoryOptions } from './stores/memory.js'
