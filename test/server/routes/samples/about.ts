// Samples of the routes about the server.
import type { Samples } from './sample.js'

export const aboutSamples: Samples = {
  'GET /healthz': {},
  'GET /readyz': {},
  'GET /v1': {},
  'GET /v1/openapi.json': {},
}
