"""Many requests of every kind from 24 clients, with cancellations in every phase: each ends exactly once, nothing leaks."""
import collections
import json
import random
import socket
import struct
import threading
import time
import urllib.parse

from server import call, demo_eval, in_threads, metrics, wait_idle
from sse import open_stream, stream

CLIENTS = 24
SERVER_ARGUMENTS = ["--sequences", 8]   # fewer than clients, so that some wait, and leave, in the queue
GROWTH_BYTES = 48 << 20   # of resident memory, from the end of the first third on
KINDS = {"whole": 20, "streamed": 20, "canary": 10, "gone at once": 8, "gone in prefill": 10, "gone in decode": 14,
         "slow reader": 4, "malformed": 14}


class Soak:
    def __init__(self, url, model):
        self.url, self.model = url, model
        where = urllib.parse.urlsplit(url)
        self.address = (where.hostname, where.port)
        self.cases = [c for c in demo_eval() if c["margin"] > 0.5]

    # Each kind returns a short name of what came of it; what must not be raises.

    def body(self, rng, longest=600):
        body = {"model": self.model, "prompt": [rng.randrange(300, 4000) for _ in range(rng.randint(1, longest))],
                "max_tokens": rng.randint(1, 60), "temperature": rng.choice([0, 0.7, 1.5]), "seed": rng.randrange(1 << 30)}
        if rng.random() < 0.3:
            body["n"] = rng.randint(2, 3)
        if rng.random() < 0.3:
            body["stop"] = [rng.choice(["a", "the", "e ", "1", "zz"]) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.2:
            body["stop_token_ids"] = [rng.randrange(4000) for _ in range(40)]
        if rng.random() < 0.3:
            body["ignore_eos"] = True
        if rng.random() < 0.2:
            body["logprobs"] = rng.randint(0, 5)
        if rng.random() < 0.2:
            body["repetition_penalty"] = 1.2
        if rng.random() < 0.1:
            body["echo"] = True
        return body

    def whole(self, rng):
        body = self.body(rng)
        answer = call(self.url, "POST", "/v1/completions", body)
        assert answer.status == 200, (answer.status, answer.body)
        parsed = answer.json()
        assert len(parsed["choices"]) == body.get("n", 1)
        assert all(c["finish_reason"] in ("stop", "length") for c in parsed["choices"])
        return "finished"

    def streamed(self, rng, pause=0.0, **more):
        body = {**self.body(rng), "stream": True, "stream_options": {"include_usage": True}, **more}
        result = stream(self.url, "/v1/completions", body, pause=pause)
        assert result.status == 200 and result.done, (result.status, result.body[-500:])
        for index in range(body.get("n", 1)):
            assert len(result.finishes(index)) == 1, (index, result.finishes(index))
        assert len(result.usages()) == 1
        return "finished"

    def canary(self, rng):
        case = rng.choice(self.cases)
        answer = call(self.url, "POST", "/v1/chat/completions", {"model": self.model, "messages": case["messages"]})
        assert answer.status == 200, answer.body
        text = answer.json()["choices"][0]["message"]["content"]
        assert text == case["output"], f"another answer than alone: {text!r}, not {case['output']!r}"
        return "finished"

    def send_and_leave(self, body, wait_s, reset):
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection(self.address, timeout=30) as connection:
            connection.sendall(head.encode() + data)
            time.sleep(wait_s)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "left"

    def gone_at_once(self, rng):
        return self.send_and_leave({**self.body(rng), "stream": rng.random() < 0.5}, 0, rng.random() < 0.5)

    def gone_in_prefill(self, rng):
        body = {**self.body(rng), "prompt": [7] * rng.randint(1200, 1900), "stream": rng.random() < 0.5}
        return self.send_and_leave(body, rng.uniform(0.002, 0.08), rng.random() < 0.5)

    def gone_in_decode(self, rng):
        body = {**self.body(rng, 64), "stream": True, "max_tokens": 1500, "ignore_eos": True}
        body.pop("stop", None)
        body.pop("stop_token_ids", None)
        connection, response = open_stream(self.url, "/v1/completions", body)
        assert response.status == 200, response.read()
        for _ in range(rng.randint(1, 30)):
            response.readline()
        response.close()
        connection.close()
        return "left"

    def slow_reader(self, rng):
        return self.streamed(rng, pause=rng.uniform(0.001, 0.02))

    def malformed(self, rng):
        good = json.dumps(self.body(rng)).encode()
        kind = rng.choice(["cut", "deep", "type", "length", "line", "header", "half", "chunk", "name", "binary", "model"])
        if kind in ("cut", "deep", "type", "name", "binary", "model"):
            body = {"cut": good[:rng.randrange(len(good) - 1)],
                    "deep": b'{"prompt":' + b"[" * rng.randint(65, 5000),
                    "type": json.dumps({**self.body(rng), rng.choice(["max_tokens", "temperature", "n", "prompt"]): {}}).encode(),
                    "name": json.dumps({**self.body(rng), "no_such_parameter": 1}).encode(),
                    "binary": rng.randbytes(rng.randint(1, 300)),
                    "model": json.dumps({**self.body(rng), "model": "other"}).encode()}[kind]
            answer = call(self.url, "POST", rng.choice(["/v1/completions", "/v1/chat/completions"]), body)
            assert answer.status in (400, 404), (kind, answer.status, answer.body[:300], body[:300])
            return f"refused {answer.status}"
        raw = {"length": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
               "line": rng.randbytes(40) + b"\r\n\r\n",
               "header": b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
               "half": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n" + good[:20],
               "chunk": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"}[kind]
        try:
            with socket.create_connection(self.address, timeout=30) as connection:
                connection.sendall(raw)
                if kind == "half":
                    return "left"
                said = connection.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            return "closed"
        assert not said or said.split()[1] in (b"400", b"413", b"431"), (kind, said[:200])
        return "refused raw" if said else "closed"


def check_counts(seen):
    """What the server says about itself after a soak, when it is idle."""
    ended = {reason: seen[f'troupe_requests_finished_total{{reason="{reason}"}}']
             for reason in ("stop", "length", "cancelled", "error")}
    assert seen["troupe_requests_admitted_total"] == sum(ended.values()), (seen["troupe_requests_admitted_total"], ended)
    assert ended["error"] == 0 and min(ended["stop"], ended["length"], ended["cancelled"]) > 0, ended
    for name in ("troupe_pool_imbalances_total", "troupe_steps_failed_total", "troupe_engine_lost",
                 'troupe_state_pages{state="quarantined"}', 'troupe_kv_blocks{state="quarantined"}',
                 'troupe_requests_refused_total{reason="queue_full"}'):
        assert seen[name] == 0, (name, seen[name])
    waited = seen["troupe_queue_seconds_count"] - seen['troupe_queue_seconds_bucket{le="0.01"}']
    assert waited > 0, "no request waited in the queue, so none was cancelled there"


def test_soak(server, url, model, request, say):
    count = request.config.getoption("--requests")
    soak = Soak(url, model)
    lock, counts, left = threading.Lock(), collections.Counter(), iter(range(count))
    resident = {}
    started = time.monotonic()

    def client(_):
        while True:
            with lock:
                index = next(left, None)
            if index is None:
                return
            if index == count // 3:
                resident["third"] = server.resident_bytes()
            rng = random.Random(index)
            kind = rng.choices(list(KINDS), KINDS.values())[0]
            try:
                outcome = getattr(soak, kind.replace(" ", "_"))(rng)
            except Exception as error:
                raise AssertionError(f"request {index} ({kind}): {type(error).__name__}: {error}") from error
            with lock:
                counts[f"{kind}: {outcome}"] += 1
    in_threads(CLIENTS, client)
    end = wait_idle(url, 60)
    resident["end"] = server.resident_bytes()
    seconds = time.monotonic() - started
    say(f"{count} requests in {seconds:.0f} s, {end['tokens']['generated']} tokens, {end['preemptions']} preemptions; " +
        ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    say(f"resident: {resident['third'] >> 20} MiB after a third, {resident['end'] >> 20} MiB at the end")
    assert sum(counts.values()) == count
    assert resident["end"] - resident["third"] < GROWTH_BYTES
    check_counts(metrics(url))
    for case in soak.cases[::40]:
        answer = call(url, "POST", "/v1/chat/completions", {"model": model, "messages": case["messages"]})
        assert answer.json()["choices"][0]["message"]["content"] == case["output"]
