#!/usr/bin/env bash
# A Millrace worker in bash, with curl and jq: heartbeats, retries, shutdown.
set -u
url=${MILLRACE_URL:-http://127.0.0.1:7070}/v1
me="bash-$(hostname)-$$"
claim=$(jq -nc --arg me "$me" --arg queue "${MILLRACE_QUEUE:-work}" --arg lease "${MILLRACE_LEASE:-30s}" \
  '{worker: $me, queues: [$queue], names: ["wait"], lease: $lease, wait: "20s"}')
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
stopping='' poll=''
trap 'stopping=1; [ -n "$poll" ] && kill "$poll" 2>/dev/null' TERM INT

# The work: gets the data of the job, prints the result, and fails with a message on stderr.
handle() {
  local seconds
  seconds=$(jq -r .seconds <<<"$1")
  case $seconds in -*) echo 'nobody can wait that long' >&2; return 1 ;; esac
  sleep "$seconds"
  jq -nc --argjson seconds "$seconds" '{waited: $seconds, by: "bash"}'
}

# Sends a body to a path, as a process of its own: writes the answer to a file, prints the status; 000: the server is away.
call() {
  exec curl -s --max-time 40 -o "$3" -w '%{http_code}' -H 'content-type: application/json' \
    -H "authorization: Bearer ${MILLRACE_TOKEN:-}" "$url$1" -d "$2"
}

# Renews the lease every third of it; ends the handler if the job is lost. Ends with the worker, however that ends.
beat() {
  local id=$1 fence=$2 third=$3 handler=$4
  while sleep "$third" && kill -0 $$ 2>/dev/null && kill -0 "$handler" 2>/dev/null; do
    case $(call "/jobs/$id/heartbeat" "{\"fence\":$fence}" /dev/null) in
      404 | 409 | 410) touch "$folder/lost"; pkill -P "$handler"; kill "$handler" 2>/dev/null; return ;;
    esac
  done
}

run() {
  local id fence third handler beating status path body pause
  id=$(jq -r '.id | @uri' <<<"$1") fence=$(jq -r .fence <<<"$1") third=$(jq -r '.leaseMs / 3000' <<<"$1")
  rm -f "$folder/lost"
  handle "$(jq -c .data <<<"$1")" >"$folder/result" 2>"$folder/error" &
  handler=$!
  beat "$id" "$fence" "$third" "$handler" &
  beating=$!
  wait "$handler"
  status=$?
  while kill -0 "$handler" 2>/dev/null; do wait "$handler"; status=$?; done # a signal ends a wait, and not the handler
  pkill -P "$beating"
  kill "$beating" 2>/dev/null
  [ -e "$folder/lost" ] && return
  if [ $status -eq 0 ]; then
    path=complete body=$(jq -c --argjson fence "$fence" '{fence: $fence, result: .}' "$folder/result")
  else
    path=fail body=$(jq -Rsc --argjson fence "$fence" '{fence: $fence, error: {message: .}}' "$folder/error")
  fi
  for pause in 0 1 2 4 8; do # with the same fence, saying it again is safe
    sleep $pause
    case $(call "/jobs/$id/$path" "$body" /dev/null) in 000 | 5??) ;; *) return ;; esac
  done
}

while [ -z "$stopping" ]; do
  call /claims "$claim" "$folder/answer" >"$folder/status" &
  poll=$!
  wait "$poll"
  poll=''
  if [ "$(cat "$folder/status")" = 200 ] && [ -z "$stopping" ]; then
    [ "$(jq -r .state "$folder/answer")" = stopping ] && break
    while read -r job; do run "$job"; done < <(jq -c '.jobs[]' "$folder/answer")
  elif [ -z "$stopping" ]; then sleep 1; fi
done
