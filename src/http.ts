// millrace/http: a store that a server serves.
export { http } from './stores/http/store.js'
export type { HttpOptions } from './stores/http/options.js'
export type { RemoteStore } from './store/store.js'
