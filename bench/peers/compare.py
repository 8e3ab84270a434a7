#!/usr/bin/env python3
"""Run llama-bench and `troupe bench` in turns and print both medians and their ratio; normally called by compare.sh.

Rounds go A-B-A-B, because the speed of a shared machine moves within minutes: only figures of one run compare.
"quiet" in the JSON report is the share of the CPUs that other processes and the hypervisor took in each run; a
figure taken beside a busy core says little. Decode starts from a one-token prompt in both programs.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import quiet


def measured(command, notes):
    """The command's standard output; says in notes how disturbed it was."""
    result, report = quiet.attempt(command)
    if result.returncode:
        sys.exit(f"failed with {result.returncode}: {' '.join(command)}")
    notes.append(round(report["foreign"] + report["steal"], 4))
    return result.stdout


def llama(a, notes):
    command = [a.llama, "-m", a.gguf, "-t", str(a.threads), "-p", str(a.prompt), "-n", str(a.output),
               "-r", str(a.repetitions), "-o", "jsonl"]
    tests = [json.loads(line) for line in measured(command, notes).splitlines() if line.startswith(b"{")]
    return {"prefill" if t["n_prompt"] else "decode": t["samples_ts"] for t in tests}


def troupe(a, notes):
    def bench(prompt, output):
        command = [a.troupe, "bench", a.checkpoint, "--prompt-tokens", str(prompt), "--output-tokens", str(output),
                   "--batch", "1", "--threads", str(a.threads), "--repetitions", str(a.repetitions), "--json"]
        return json.loads(measured(command + a.troupe_options.split(), notes))

    def values(rate):
        return [rate["min"], rate["median"], rate["max"]]

    prefill, decode = bench(a.prompt, 1), bench(1, a.output)
    return {"prefill": values(prefill["prefill_tokens_per_s"]), "decode": values(decode["decode_tokens_per_s"]),
            "about": {k: decode.get(k) for k in ("kernel_set", "activations", "numerics", "resident_bytes", "roofline")}}


def spread(rounds, what):
    """Median of the rounds' medians; least and largest of all."""
    values = [sorted(r[what]) for r in rounds]
    return {"median": round(statistics.median(statistics.median(v) for v in values), 2),
            "min": round(min(v[0] for v in values), 2), "max": round(max(v[-1] for v in values), 2)}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--troupe", required=True)
    ap.add_argument("--llama", required=True)
    ap.add_argument("--roofline", help="program that prints what the CPU can do, run first")
    ap.add_argument("--checkpoint", required=True)
    ap.add_argument("--gguf", required=True)
    ap.add_argument("--report", help="file for the JSON report")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--repetitions", type=int, default=3)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--prompt", type=int, default=512)
    ap.add_argument("--output", type=int, default=64)
    ap.add_argument("--troupe-options", default="", help="more options of `troupe bench`, as one argument")
    ap.add_argument("--json", action="store_true", help="print the JSON report, not the table")
    a = ap.parse_args()

    roofline = json.loads(subprocess.check_output([a.roofline])) if a.roofline else None
    runs, notes = {"llama.cpp": [], "troupe": []}, {"llama.cpp": [], "troupe": []}
    for number in range(1, a.rounds + 1):
        print(f"compare: round {number} of {a.rounds}", file=sys.stderr)
        runs["llama.cpp"].append(llama(a, notes["llama.cpp"]))
        runs["troupe"].append(troupe(a, notes["troupe"]))

    report = {"threads": a.threads, "rounds": a.rounds, "prompt_tokens": a.prompt, "output_tokens": a.output,
              "roofline": roofline, "quiet": notes, "troupe": runs["troupe"][-1]["about"], "tokens_per_s": {}}
    lines = [f"{'tokens/s, median (min - max)':30}{'llama.cpp bf16':>26}{'troupe':>26}{'ratio':>8}"]
    for what, size in (("prefill", a.prompt), ("decode", a.output)):
        peer, ours = spread(runs["llama.cpp"], what), spread(runs["troupe"], what)
        ratio = round(ours["median"] / peer["median"], 3)
        report["tokens_per_s"][what] = {"llama.cpp": peer, "troupe": ours, "ratio": ratio}
        cells = [f"{s['median']} ({s['min']} - {s['max']})" for s in (peer, ours)]
        lines.append(f"{what + ' ' + str(size):30}{cells[0]:>26}{cells[1]:>26}{ratio:>8.2f}")
    disturbed = max(max(n) for n in notes.values())
    if disturbed > 0.05:
        lines.append(f"others used up to {disturbed:.0%} of the CPUs meanwhile: take these figures with care")
    if a.report:
        with open(a.report, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
            f.write("\n")
    print(json.dumps(report) if a.json else "\n".join(lines))


if __name__ == "__main__":
    main()
