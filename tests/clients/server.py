"""Starts, watches and stops `troupe serve`; standard library only."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "models" / "demo"
START_DEADLINE_S = 60
STOP_DEADLINE_S = 60


class Server:
    """One process of `troupe serve` on the demo model. What it says on standard error is kept in a file."""

    def __init__(self, program, *arguments, port=0):
        self.program = str(program)
        self.arguments = [str(a) for a in arguments]
        self.port = port
        self.process = None
        self.url = None
        self.log = None

    def start(self):
        self.log = pathlib.Path(tempfile.mkstemp(prefix="troupe-serve-", suffix=".log")[1])
        command = [self.program, "serve", "--listen", f"127.0.0.1:{self.port}", *self.arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            found = re.search(r"listening on (https?://[0-9a-zA-Z.\[\]:]+)", self.said())
            if found:
                self.url = found.group(1)
                return self
            if self.process.poll() is not None:
                raise RuntimeError(f"`{' '.join(command)}` ended with {self.process.returncode}: {self.said()}")
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"no 'listening on' within {START_DEADLINE_S} s: {self.said()}")

    def said(self):
        return self.log.read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"did not end within {STOP_DEADLINE_S} s of SIGTERM: {self.said()[-4000:]}") from None

    def resident_bytes(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        code = self.stop()
        if kind is None and code != 0:
            raise AssertionError(f"the server ended with {code} after SIGTERM, not 0: {self.said()[-4000:]}")
        if kind is None:
            self.log.unlink()


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body

    def json(self):
        return json.loads(self.body)


def call(url, method, path, body=None, fields=None, timeout=60):
    """One request on a connection of its own."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    try:
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **(fields or {})})
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def state(url):
    return call(url, "GET", "/v1/troupe/state").json()


def wait_until(what, condition, deadline_s=30):
    """`what` names it in the failure; returns the first true value."""
    deadline = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.05)


def wait_idle(url, deadline_s=30):
    """Until nothing runs or waits and the pools are empty; returns the state."""
    def idle():
        now = state(url)
        busy = (now["queue"]["waiting"] + now["queue"]["running"] + now["pages"]["used"] + now["blocks"]["used"])
        return now if busy == 0 else None
    try:
        return wait_until("the server is idle and its pools are empty", idle, deadline_s)
    except AssertionError as error:
        raise AssertionError(f"{error}: {json.dumps(state(url))}") from None


def metrics(url):
    """{name with labels: value}."""
    values = {}
    for line in call(url, "GET", "/metrics").body.decode().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    return values


def demo_eval():
    with (DEMO / "eval.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def in_threads(count, work):
    """Runs work(0) … work(count-1) at once; returns the results in order; the first exception is raised."""
    results, errors = [None] * count, []

    def run(index):
        try:
            results[index] = work(index)
        except BaseException as error:  # noqa: B902 - handed over to the caller
            errors.append(error)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
