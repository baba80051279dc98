#!/usr/bin/env python3
"""A Millrace worker with Python's standard library alone: heartbeats, retries, shutdown. Python 3.9 or later."""
import json, os, signal, socket, threading, time, urllib.error, urllib.request

BASE = os.environ.get("MILLRACE_URL", "http://127.0.0.1:7070") + "/v1"
TOKEN = os.environ.get("MILLRACE_TOKEN", "")
QUEUE = os.environ.get("MILLRACE_QUEUE", "work")
LEASE = os.environ.get("MILLRACE_LEASE", "30s")
ME = f"python-{socket.gethostname()}-{os.getpid()}"
stopping, idle = threading.Event(), False


class Stop(Exception): pass


def wait(data, lost):  # the work; it looks at `lost`, because the job may be cancelled, or become another worker's
    if data["seconds"] < 0: raise ValueError("nobody can wait that long")
    if lost.wait(data["seconds"]): raise Stop()
    return {"waited": data["seconds"], "by": "python"}


HANDLERS = {"wait": wait}


def call(path, body, method="POST"):
    headers = {"content-type": "application/json", "authorization": "Bearer " + TOKEN}
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as problem:
        with problem: return problem.code, json.load(problem)


def run(job):
    path, fence = f"/jobs/{job['id']}/", {"fence": job["fence"]}
    ended, lost = threading.Event(), threading.Event()

    def beat():  # every third of the lease, until the handler has ended or the job is lost
        while not ended.wait(job["leaseMs"] / 3000):
            try:
                if call(path + "heartbeat", fence)[0] in (404, 409, 410): return lost.set()
            except OSError: pass  # the next beat may get through

    threading.Thread(target=beat, daemon=True).start()
    try:
        settle, body = "complete", fence | {"result": HANDLERS[job["name"]](job["data"], lost)}
    except Exception as error:
        settle, body = "fail", fence | {"error": {"name": type(error).__name__, "message": str(error)}}
    ended.set()
    for pause in (0, 1, 2, 4, 8):  # with the same fence, saying it again is safe
        time.sleep(pause)
        try:
            if lost.is_set() or call(path + settle, body)[0] < 500: return
        except OSError: pass  # the server is away; if that lasts, the lease ends, and the job runs again


def stop(*_):
    stopping.set()
    if idle: raise Stop()


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
claim = {"worker": ME, "queues": [QUEUE], "names": list(HANDLERS), "lease": LEASE, "wait": "20s"}
while not stopping.is_set():
    try:
        idle = True
        status, answer = call("/claims", claim)
        idle = False
    except (OSError, Stop):
        status, answer, idle = 503, {}, False
    if status != 200:
        stopping.wait(1)
    elif answer["state"] == "stopping":
        break  # an operator has asked for it
    for job in answer.get("jobs", []):
        run(job)
