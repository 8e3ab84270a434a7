"""How each program is asked for a figure, for compare.py. Each function takes the run's Run and returns figures."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import quiet
import serving

HERE = os.path.dirname(os.path.abspath(__file__))


class Run:
    """Paths and options of a run; what is learnt by the way; how disturbed the last measurement was."""

    def __init__(self, options):
        self.options = options
        self.about = {}           # of Troupe, by checkpoint
        self.weight_bytes = {}    # of a decode step of Troupe, by (checkpoint, sequences)
        self.disturbed = 0.0

    def output(self, command):
        result, report = quiet.attempt(command)
        if result.returncode:
            sys.exit(f"failed with {result.returncode}: {' '.join(command)}")
        self.note(report)
        return result.stdout

    def note(self, report):
        self.disturbed = max(self.disturbed, report["foreign"] + report["steal"])

    def gguf(self, kind):
        return f"{self.options.model}-{kind}.gguf"

    def checkpoint(self, kind):
        return self.options.model + ("" if kind == "bf16" else "-" + kind)


def llama_bench(run, kind, threads, repetitions, prompt=0, output=0, depth=0):
    command = [run.options.llama + "/llama-bench", "-m", run.gguf(kind), "-t", str(threads), "-p", str(prompt),
               "-n", str(output), "-d", str(depth), "-r", str(repetitions), "-o", "jsonl"]
    lines = run.output(command).splitlines()
    test = next(json.loads(line) for line in lines if line.startswith(b"{"))
    run.about["llama.cpp"] = test["build_commit"]
    return test["samples_ts"]


def llama_batched(run, kind, threads, repetitions, sequences, prompt, output):
    command = [run.options.llama + "/llama-batched-bench", "-m", run.gguf(kind), "-b", "2048", "-ub", "512",
               "-c", str(sequences * (prompt + output + 32)), "-t", str(threads), "-npp", str(prompt),
               "-ntg", str(output), "-npl", ",".join([str(sequences)] * repetitions), "--output-format", "jsonl"]
    return [json.loads(line)["speed_tg"] for line in run.output(command).splitlines() if line.startswith(b"{")]


def troupe_bench(run, kind, threads, repetitions, prompt, output, sequences=1):
    """Prefill rates without output, else decode rates: those of the repetitions that the program reports."""
    command = [run.options.troupe, "bench", run.checkpoint(kind), "--prompt-tokens", str(prompt), "--output-tokens",
               str(output), "--batch", str(sequences), "--threads", str(threads), "--repetitions", str(repetitions),
               "--json", *run.options.troupe_options.split()]
    report = json.loads(run.output(command))
    run.about[kind] = {key: report[key] for key in ("kernel_set", "activations", "numerics", "resident_bytes")}
    run.weight_bytes[kind, sequences] = report["roofline"]["decode_weight_bytes"]
    rate = report["decode_tokens_per_s" if output else "prefill_tokens_per_s"]
    return [rate[key] for key in (["median"], ["min", "max"], ["min", "median", "max"])[min(repetitions, 3) - 1]]


def transformers_prefill(run, threads, repetitions, prompt):
    command = [sys.executable, "-B", os.path.join(HERE, "transformers_prefill.py"), run.options.model, "--threads",
               str(threads), "--repetitions", str(repetitions), "--prompt", str(prompt)]
    return json.loads(run.output(command))["tokens_per_s"]


def beside_busy_core(run, measure):
    """measure() while another process keeps the last core busy, which does not count as disturbance."""
    cpus, before = os.cpu_count(), run.disturbed
    run.disturbed, began = 0.0, time.monotonic()
    busy = subprocess.Popen(["taskset", "-c", str(cpus - 1), sys.executable, "-c", "while True: pass"])
    try:
        figures = measure()
    finally:
        wall = time.monotonic() - began
        busy.kill()
        _, _, used = os.wait4(busy.pid, 0)
        busy.returncode = 0
    run.disturbed = max(before, run.disturbed - (used.ru_utime + used.ru_stime) / wall / cpus)
    return figures


def server(run, command, what):
    """Starts a server, PORT in its command being a free one, and returns [seconds to ready] or [resident MiB]."""
    port = serving.free_port()
    command = [part.replace("PORT", str(port)) for part in command]
    watch = quiet.Watch()
    with open("start.log", "ab") as log:
        with serving.running(command, f"http://127.0.0.1:{port}", log) as (process, ready):
            resident = serving.resident_bytes(process.pid) / 2**20
    run.note(watch.report())
    return [ready if what == "seconds" else resident]


def llama_start(run, what):
    return server(run, [run.options.llama + "/llama-server", "-m", run.gguf("bf16"), "-t", str(run.options.threads),
                        "-np", "8", "-c", "4096", "--host", "127.0.0.1", "--port", "PORT"], what)


def troupe_start(run, what, checkpoint=None):
    return server(run, [run.options.troupe, "serve", checkpoint or run.options.model, "--listen", "127.0.0.1:PORT",
                        "--threads", str(run.options.threads), "--sequences", "8"], what)


def troupe_first_start(run, what):
    """On a folder of links, without what an earlier start may have left beside the checkpoint."""
    folder = tempfile.mkdtemp(prefix="fresh-", dir=".")
    try:
        for name in os.listdir(run.options.model):
            if name.endswith((".json", ".txt", ".safetensors")):
                os.symlink(os.path.abspath(os.path.join(run.options.model, name)), os.path.join(folder, name))
        return troupe_start(run, what, folder)
    finally:
        shutil.rmtree(folder)
