"""Server-sent events over raw HTTP, with the time of each; standard library only."""
import dataclasses
import http.client
import json
import time
import urllib.parse


@dataclasses.dataclass
class Events:
    status: int
    fields: dict
    body: bytes = b""          # of an answer that is no stream, or the raw stream
    events: list = dataclasses.field(default_factory=list)   # parsed JSON
    times: list = dataclasses.field(default_factory=list)    # of each event, seconds after the request was sent
    done: bool = False         # data: [DONE] came, and the stream ended after it
    seconds: float = 0

    def text(self, index=0):
        pieces = []
        for event in self.events:
            for choice in event["choices"]:
                if choice["index"] == index:
                    pieces.append(choice.get("text") or (choice.get("delta") or {}).get("content") or "")
        return "".join(pieces)

    def finishes(self, index=0):
        return [c["finish_reason"] for e in self.events for c in e["choices"]
                if c["index"] == index and c["finish_reason"] is not None]

    def usages(self):
        return [e["usage"] for e in self.events if e.get("usage")]


def open_stream(url, path, body, fields=None, timeout=60):
    """The connection and the response, whose body is not read yet."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(fields or {})})
    return connection, connection.getresponse()


def stream(url, path, body, fields=None, timeout=60, pause=0.0):
    """One whole streamed request. `pause`: seconds after each line, a slow reader."""
    start = time.monotonic()
    connection, response = open_stream(url, path, body, fields, timeout)
    try:
        result = Events(response.status, {k.lower(): v for k, v in response.getheaders()})
        if response.status != 200:
            result.body = response.read()
        else:
            read(response, result, start, pause)
        result.seconds = time.monotonic() - start
        return result
    finally:
        connection.close()


def read(response, result, start, pause):
    raw = []
    for line in response:
        raw.append(line)
        if line.startswith(b"data:"):
            data = line[5:].strip()
            assert not result.done, "an event after [DONE]"
            if data == b"[DONE]":
                result.done = True
            else:
                result.events.append(json.loads(data))
                result.times.append(time.monotonic() - start)
        if pause:
            time.sleep(pause)
    result.body = b"".join(raw)
