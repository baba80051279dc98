// millrace/http: a store that a server serves, and the calls of a worker that claims over HTTP by itself.
export { http } from './stores/http/store.js'
export type { HttpOptions } from './stores/http/options.js'
export type { RemoteStore } from './store/store.js'
export { HttpClient, httpClient } from './stores/http/client.js'
export type {
  CallOptions,
  ClaimAnswer,
  ClaimJobOptions,
  HeldLease,
  HttpClientOptions,
  RemoteJob,
  SettledJob,
  SubmitOptions,
  SubmittedJob,
} from './stores/http/client.js'
