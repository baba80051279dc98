// job/errors/server-errors.ts: the entries of the catalogue for requests to a server.

/** Errors of requests to a server, by their codes. */
export const serverErrors = {
  INVALID_REQUEST: {
    summary: 'A request to the server has a body, a parameter or a header that the route does not take.',
    remedy: 'Correct the field that the message names. `GET /v1/openapi.json` describes each route.',
  },
  UNAUTHORIZED: {
    summary: 'The request has no token, or one that the server does not know, or that has expired.',
    remedy: 'Send `authorization: Bearer <token>` with a token of this server.',
  },
  FORBIDDEN: {
    summary: 'The token may not do that: it lacks the role, or its roles do not hold for the queue.',
    remedy: 'Use a token with the role and the queue that the message names, or ask for one.',
  },
  READ_ONLY: {
    summary: 'The server was started with `readOnly: true` and refuses everything but reads.',
    remedy: 'Send the change to a server that is not read-only.',
  },
  ROUTE_NOT_FOUND: {
    summary: 'The server has no route with that path.',
    remedy: 'Check the path, and the `base` that the server is mounted under. `GET /v1/openapi.json` lists the routes.',
  },
  METHOD_NOT_ALLOWED: {
    summary: 'The route exists, but not for that method.',
    remedy: 'Use one of the methods in the `Allow` header.',
  },
  REQUEST_TIMEOUT: {
    summary: 'The body of the request did not arrive in time.',
    remedy: 'Send the request again, on a faster connection or with a smaller body.',
  },
  BODY_TOO_LARGE: {
    summary: 'The body of the request is larger than the server takes, as sent or once decompressed.',
    remedy: 'Send less at once: fewer jobs, or payloads that refer to data kept elsewhere.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    summary: 'The body is not JSON in UTF-8, or is compressed in a way that the server does not know.',
    remedy: 'Send `content-type: application/json`, and no `content-encoding` but gzip.',
  },
  HOST_NOT_ALLOWED: {
    summary:
      'A server without `auth` answers on this machine alone, and the `Host` header of the request names another host. That guards against pages that rebind their name to this machine.',
    remedy: 'Use localhost, 127.0.0.1 or [::1], or start the server with `auth`.',
  },
  RATE_LIMITED: {
    summary: 'The token has sent more requests than its `rate` allows.',
    remedy: 'Wait as long as the `Retry-After` header says. Send more jobs in one request, or claim with `wait`.',
  },
  SERVER_BUSY: {
    summary: 'The server has as many requests in work as it takes, or is shutting down. Nothing was written.',
    remedy: 'Send the request again, after the time in the `Retry-After` header.',
  },
  IDEMPOTENCY_MISMATCH: {
    summary: 'A job was added under this `Idempotency-Key` before, with another name or other data.',
    remedy: 'Use a new key for each new job, and the same key only to send the same request again.',
  },
  WORKER_NOT_FOUND: {
    summary: 'No worker with this id claims over HTTP from the queues of the token.',
    remedy: 'Check the id: `GET /v1/workers` lists them. A worker that was silent for long is forgotten.',
  },
  AUTH_NEEDED: {
    summary: 'A server without `auth` was told to listen on an address that other machines can reach.',
    remedy: 'Give `serve` the option `auth`, or listen on 127.0.0.1.',
  },
  SERVER_UNREACHABLE: {
    summary: 'The server of a remote store could not be reached for as long as `patience`. Nothing was sent.',
    remedy:
      'Check the address in the message, the network, and that the server runs. The error of the connection is in `cause`.',
  },
  UPKEEP_ELSEWHERE: {
    summary:
      'A queue on a remote store was given webhooks with a secret, or callbacks of retention. They are for the process that does the upkeep of the queue, which is the server.',
    remedy: 'Leave the option out here, and give it to the queue object that the server serves.',
  },
  PROTOCOL_MISMATCH: {
    summary: 'The server and its client speak no common version of the store protocol. Nothing was written.',
    remedy:
      'Update the older of the two. A server speaks the protocol of its own version and the one before: update servers first.',
  },
  INTERNAL: {
    summary: 'The server failed in a way that it does not know. Its log has the error, under the id of the request.',
    remedy: 'Look up the request in the log of the server, and report it.',
  },
} as const satisfies Record<string, { readonly summary: string; readonly remedy: string }>
