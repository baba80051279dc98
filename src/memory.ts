// memory.ts: the door of the memory store.
export { memory } from './stores/memory/store.js'
export type { MemoryOptions } from './stores/memory/store.js'
