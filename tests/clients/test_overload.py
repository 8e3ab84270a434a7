"""200 clients at once against a queue of 32: refusals are quick, accepted requests finish in bounded time."""
import threading

from server import call, in_threads, wait_idle
from sse import stream

CLIENTS = 200
QUEUE = 32
SERVER_ARGUMENTS = ["--queue", QUEUE, "--sequences", 8]
TOKENS = 48
REFUSAL_S = 2.0
ACCEPTED_S = 60.0


def spread(values):
    values = sorted(values)
    return " ".join(f"p{q} {1e3 * values[min(len(values) - 1, len(values) * q // 100)]:.0f}" for q in (50, 90, 99)) + \
        f" max {1e3 * values[-1]:.0f} ms"


def test_overload(url, model, say):
    body = {"model": model, "messages": [{"role": "user", "content": "Write a story about a frog."}], "stream": True,
            "max_completion_tokens": TOKENS, "ignore_eos": True, "stream_options": {"include_usage": True}}
    together = threading.Barrier(CLIENTS)

    def client(_):
        together.wait()
        return stream(url, "/v1/chat/completions", body, timeout=120)
    results = in_threads(CLIENTS, client)
    accepted = [r for r in results if r.status == 200]
    refused = [r for r in results if r.status != 200]
    say(f"{len(accepted)} accepted: first token {spread([r.times[0] for r in accepted])}; end {spread([r.seconds for r in accepted])}")
    say(f"{len(refused)} refused: {spread([r.seconds for r in refused])}")
    assert len(accepted) >= QUEUE and refused
    for result in refused:
        assert result.status == 429 and int(result.fields["retry-after"]) >= 1
        assert b'"queue_full"' in result.body
    for result in accepted:
        assert result.done and result.finishes() == ["length"] and result.usages()[0]["completion_tokens"] == TOKENS
    assert len({r.text() for r in accepted}) == 1, "greedy answers to one prompt differ"
    assert max(r.seconds for r in refused) < REFUSAL_S
    assert max(r.seconds for r in accepted) < ACCEPTED_S
    wait_idle(url)
    assert call(url, "GET", "/health/ready").status == 200
    assert stream(url, "/v1/chat/completions", body).done
