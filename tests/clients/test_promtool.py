"""promtool reads /metrics and has nothing to say about it."""
import subprocess

from server import call, in_threads, metrics, wait_idle
from sse import stream

CLIENT = ["/usr/bin/promtool", "--version"]
STORY = [{"role": "user", "content": "Write a story about a frog."}]


def check(url):
    answer = call(url, "GET", "/metrics")
    assert answer.status == 200 and answer.fields["content-type"].startswith("text/plain; version=0.0.4")
    done = subprocess.run([CLIENT[0], "check", "metrics"], input=answer.body, capture_output=True)
    assert done.returncode == 0 and not done.stdout and not done.stderr, (done.stdout + done.stderr).decode()
    return answer.body.decode()


def test_metrics_are_valid_before_under_and_after_load(url, model):
    check(url)
    body = {"model": model, "messages": STORY, "stream": True}

    def work(index):
        return check(url) if index % 2 else stream(url, "/v1/chat/completions", body)
    in_threads(8, work)
    text = check(url)
    for line in text.splitlines():
        assert line.startswith("#") or line.startswith("troupe_") or line.startswith("process_"), line


def test_what_happened_is_counted(url, model):
    wait_idle(url)
    before = metrics(url)
    call(url, "POST", "/v1/chat/completions", {"model": model, "messages": STORY})
    call(url, "POST", "/v1/chat/completions", {"model": "other", "messages": STORY})
    wait_idle(url)
    after = metrics(url)
    assert set(before) <= set(after), "a series went away"
    grown = {name for name in after if after[name] > before.get(name, 0)}
    for word in ("requests", "tokens", "steps"):
        assert any(word in name for name in grown), f"nothing with '{word}' grew: {sorted(grown)}"
    falling = {n for n in before if "_total" in n and after[n] < before[n]}
    assert not falling
