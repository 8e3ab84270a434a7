#!/usr/bin/env python3
"""llama-server and `troupe serve` in turns under concurrent streaming clients; normally called by compare.sh --serving.

Each round starts a server, waits until it is ready, sends one warm-up request, runs load_client.py and reads the
memory that is resident then. Rounds go A-B-A-B, because the speed of a shared machine moves within minutes: only
figures of one run compare.
"""
import argparse
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
READY_SECONDS = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def resident_bytes(pid):
    status = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def wait_ready(url, process):
    began = time.monotonic()
    while time.monotonic() - began < READY_SECONDS:
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url + "/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.01)
    sys.exit(f"{url} was not ready within {READY_SECONDS} s")


def load(url, a, requests, seed, extra):
    command = [sys.executable, "-B", os.path.join(HERE, "load_client.py"), url, "--concurrency", str(a.clients),
               "--requests", str(requests), "--prompt-tokens", str(a.prompt), "--output-tokens", str(a.output),
               "--seed", str(seed), "--model", a.model, "--extra", json.dumps(extra)]
    result = subprocess.run(command, stdout=subprocess.PIPE)
    if result.returncode:
        sys.exit(f"{url}: not every request succeeded: {result.stdout.decode()}")
    return json.loads(result.stdout)


@contextlib.contextmanager
def running(command, url, log):
    """Starts a server and yields (its process, seconds until it was ready); ends it."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_ready(url, process)
        yield process, time.monotonic() - started
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(command, url, a, seed, extra, log):
    with running(command, url, log) as (process, ready):
        load(url, a, a.clients, seed + 1000, extra)
        report = load(url, a, a.requests, seed, extra)
        return {"ready_s": ready, "output_per_s": report["output_per_s"], "ttft_p50_ms": report["ttft_ms"]["p50"],
                "ttft_p99_ms": report["ttft_ms"]["p99"], "itl_p50_ms": report["itl_ms"]["p50"],
                "itl_p99_ms": report["itl_ms"]["p99"], "resident_mib": resident_bytes(process.pid) / 2**20}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--troupe", required=True)
    ap.add_argument("--llama-server", required=True)
    ap.add_argument("--checkpoint", required=True)
    ap.add_argument("--gguf", required=True)
    ap.add_argument("--report", help="file for the JSON report")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--clients", type=int, default=8)
    ap.add_argument("--requests", type=int, default=24)
    ap.add_argument("--prompt", type=int, default=64)
    ap.add_argument("--output", type=int, default=64)
    ap.add_argument("--json", action="store_true", help="print the JSON report, not the table")
    a = ap.parse_args()
    a.model = os.path.basename(os.path.normpath(a.checkpoint))

    runs = {"llama-server": [], "troupe serve": []}
    with open("serving.log", "wb") as log:
        for number in range(1, a.rounds + 1):
            print(f"serving: round {number} of {a.rounds}", file=sys.stderr)
            port = free_port()
            slots = a.clients * (a.prompt + a.output + 384)
            runs["llama-server"].append(measure(
                [a.llama_server, "-m", a.gguf, "-t", str(a.threads), "-np", str(a.clients), "-c", str(slots),
                 "--host", "127.0.0.1", "--port", str(port)],
                f"http://127.0.0.1:{port}", a, number, {"ignore_eos": True, "cache_prompt": False}, log))
            port = free_port()
            runs["troupe serve"].append(measure(
                [a.troupe, "serve", a.checkpoint, "--listen", f"127.0.0.1:{port}", "--threads", str(a.threads)],
                f"http://127.0.0.1:{port}", a, number, {"ignore_eos": True}, log))

    figures = {name: {key: round(statistics.median(r[key] for r in rounds), 2) for key in rounds[0]}
               for name, rounds in runs.items()}
    ours, theirs = figures["troupe serve"], figures["llama-server"]
    ratios = {key: round(ours[key] / theirs[key], 3) for key in ours}
    report = {"clients": a.clients, "requests": a.requests, "prompt_tokens": a.prompt, "output_tokens": a.output,
              "threads": a.threads, "rounds": runs, "median": figures, "ratio": ratios}
    if a.report:
        with open(a.report, "w") as file:
            json.dump(report, file, indent=1)
    if a.json:
        print(json.dumps(report))
        return
    print(f"{a.clients} streaming clients, {a.requests} requests of {a.prompt} + {a.output} tokens, {a.threads} threads; "
          f"medians of {a.rounds} rounds")
    print(f"{'':14} {'llama-server':>13} {'troupe serve':>13} {'ratio':>7}")
    for key in ours:
        print(f"{key:14} {theirs[key]:13} {ours[key]:13} {ratios[key]:7}")


if __name__ == "__main__":
    main()
