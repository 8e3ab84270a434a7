"""HAProxy in front of the server: events pass one by one, and a client that goes away is seen."""
import socket
import subprocess
import time

import pytest

from server import Server, call, wait_idle, wait_until
from sse import open_stream, stream

CLIENT = ["/usr/sbin/haproxy", "-v"]
STORY = [{"role": "user", "content": "Write a story about a frog."}]


@pytest.fixture(scope="module")
def proxy(program, tmp_path_factory):
    # Slow enough for an answer to take longer than any hiccup of a busy machine.
    with Server(program, "--kernels", "scalar", "--threads", 1) as server:
        yield from proxy_of(server.url, tmp_path_factory)


def proxy_of(url, tmp_path_factory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path_factory.mktemp("haproxy") / "haproxy.cfg"
    config.write_text(f"""
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend front
  bind 127.0.0.1:{port}
  default_backend troupe
backend troupe
  option httpchk GET /health/ready
  server one {url.removeprefix("http://")} check inter 200ms
""")
    process = subprocess.Popen([CLIENT[0], "-db", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    front = f"http://127.0.0.1:{port}"

    def ready():
        try:
            return call(front, "GET", "/health").status == 200
        except OSError:
            return False
    try:
        wait_until("the proxy passes requests on", ready, 10)
        yield front
    finally:
        process.kill()
        process.wait()


def test_events_arrive_one_by_one(proxy, model, say):
    body = {"model": model, "messages": STORY, "stream": True, "max_completion_tokens": 400,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    result = stream(proxy, "/v1/chat/completions", body)
    assert result.status == 200 and result.done
    assert result.usages()[0]["completion_tokens"] == 400
    first, last = result.times[0], result.times[-1]
    say(f"{len(result.events)} events, first after {first * 1e3:.0f} ms, last after {last * 1e3:.0f} ms")
    assert first < last / 2, "the first event waited for the others"
    span = last - first
    quarters = [sum(span * i / 4 <= t - first <= span * (i + 1) / 4 for t in result.times) for i in range(4)]
    assert min(quarters) > 0, f"events per quarter of the time: {quarters}"


def test_keep_alive_and_errors_pass(proxy, model):
    assert call(proxy, "POST", "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 2}).status == 200
    assert call(proxy, "POST", "/v1/completions", {"model": "other", "prompt": "a"}).status == 404
    assert call(proxy, "POST", "/v1/completions", "{").status == 400


def test_a_client_that_leaves_the_proxy_is_cancelled(proxy, model):
    body = {"model": model, "messages": STORY, "stream": True, "max_completion_tokens": 1900, "ignore_eos": True}
    connection, response = open_stream(proxy, "/v1/chat/completions", body)
    for _ in range(6):
        response.readline()
    connection.sock and connection.sock.close()
    response.close()
    connection.close()
    started = time.monotonic()
    wait_idle(proxy, 5)
    assert time.monotonic() - started < 5
