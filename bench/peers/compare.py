#!/usr/bin/env python3
"""Troupe, llama.cpp and Transformers in turns: a table and a JSON report; normally called by compare.sh.

Within a row the sides take turns (A-B-A-B), because the speed of a shared machine moves within minutes: only figures
of one row compare. Beside each speed: its share of the memory bandwidth (decode: weights, delta-net state, keys and
values that a step moves) or of the arithmetic peak (prefill: the weights' multiplications) that roofline found in the
same minute, and how far the log probabilities are from fp32 with the same weights before conversion (accuracy.py).
"disturbed" is the share of the CPUs that other processes and the hypervisor took at worst; a figure taken beside a busy
core says little.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import accuracy
import rows
import sides
import sizes


def roofline(run, row, best):
    """Notes in best the best pass of a short run with the row's threads."""
    found = json.loads(subprocess.check_output([run.options.roofline, "1", "0.2", str(row.threads)]))
    for key, (_, _, high) in found.items():
        name = "bytes_per_s" if key.startswith("dram") else "flop_per_s"
        best[name] = max(best.get(name, 0), high * 1e9)


def share(run, row, side, median, best):
    """Of what the machine can do at most, or None."""
    config = sizes.read_config(run.options.model)
    if row.bound == "peak":
        return median * sizes.prefill_flops(run.gguf("bf16"), config) / best["flop_per_s"]
    if row.bound == "bandwidth":
        weights = run.weight_bytes[side.weights, row.sequences] if side.program == rows.OURS else \
            sizes.gguf_step(run.gguf(side.weights), config, row.sequences)
        step = weights + sizes.state_step(config, row.sequences, row.context)
        return median / row.sequences * step / best["bytes_per_s"]
    return None


def ratio(row, label, figures):
    """The side's median over that of the side it is compared with, or None."""
    to = row.against.get(label)
    if to is None:
        return None
    if to == "best":
        to = max((other for other in figures if other != label), key=lambda other: figures[other]["median"])
    return {"to": to, "value": round(figures[label]["median"] / figures[to]["median"], 3)}


def measure(run, row):
    values, best, run.disturbed = {side.label: [] for side in row.sides}, {}, 0.0
    began = time.monotonic()
    for _ in range(run.options.rounds):
        for side in reversed(row.sides):
            if row.bound:
                roofline(run, row, best)
            values[side.label].append(side.measure())
    figures = {}
    for side in row.sides:
        taken = [v for figures_of_round in values[side.label] for v in figures_of_round]
        figures[side.label] = {
            "program": side.program, "weights": side.weights, "note": side.note,
            "median": round(statistics.median(statistics.median(v) for v in values[side.label]), 3),
            "min": round(min(taken), 3), "max": round(max(taken), 3), "rounds": values[side.label]}
    for side in row.sides:
        figure = figures[side.label]
        part = share(run, row, side, figure["median"], best)
        figure["share"] = part and round(part, 3)
        figure["ratio"] = ratio(row, side.label, figures)
    return {"name": row.name, "title": row.title, "unit": row.unit, "bound": row.bound, "goal": row.goal,
            "threads": row.threads, "sequences": row.sequences, "roofline": best, "sides": figures,
            "disturbed": round(run.disturbed, 3), "seconds": round(time.monotonic() - began, 1)}


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        info = dict(line.split(":", 1) for line in f if ":" in line)
    info = {key.strip(): value.strip() for key, value in info.items()}
    known = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    return {"cpu": info.get("model name", platform.processor()), "family": info.get("cpu family"),
            "model": info.get("model"), "cpus": os.cpu_count(),
            "features": [f for f in known if f in info.get("flags", "").split()],
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)}


def accuracy_of(report, figure):
    found = report.get("accuracy", {}).get(f"{figure['program']} {figure['weights']}")
    return found and found["difference"]


def lines_of(report, row):
    for number, (label, figure) in enumerate(row["sides"].items()):
        compared, part, difference = figure["ratio"], figure["share"], accuracy_of(report, figure)
        cells = [row["title"] if not number else "", label,
                 f"{figure['median']:.2f} ({figure['min']:.2f} - {figure['max']:.2f}) {row['unit']}",
                 f"{part:.0%}" if part else "", f"{difference:.4f}" if difference is not None else "",
                 f"{compared['value']:.2f}" if compared else "",
                 f"{row['goal']:.2f}" if row["goal"] and not number else "",
                 f"{row['disturbed']:.0%}" if not number else ""]
        yield "{:42}{:30}{:36}{:>7}{:>10}{:>8}{:>7}{:>10}".format(*cells).rstrip()


def table(report):
    yield "{:42}{:30}{:36}{:>7}{:>10}{:>8}{:>7}{:>10}".format(
        "", "", "median (min - max)", "bound", "from fp32", "ratio", "goal", "disturbed")
    for row in report["rows"]:
        yield from lines_of(report, row)
    for name, found in report.get("accuracy", {}).items():
        tokens = f"{found['tokens']} tokens"
        yield f"log probabilities of {name}: {found['difference']:.4f} from fp32 on average over {tokens}"
    disturbed = [row["name"] for row in report["rows"] if row["disturbed"] > 0.05]
    if disturbed:
        yield f"others used more than 5 % of the CPUs meanwhile, so take with care: {', '.join(disturbed)}"


def save(path, report):
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    os.replace(path + ".part", path)


def parse():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--troupe", required=True)
    ap.add_argument("--llama", required=True, help="folder of llama.cpp's programs")
    ap.add_argument("--roofline", required=True, help="program that measures what the CPU can do")
    ap.add_argument("--model", required=True,
                    help="checkpoint NAME, beside NAME-fp8, NAME-bf16.gguf, NAME-q8_0.gguf, NAME-q4_k_m.gguf")
    ap.add_argument("--reference", required=True, help="reference.py's file")
    ap.add_argument("--report", default="compare.json", help="file for the JSON report, written after each row")
    ap.add_argument("--quick", action="store_true", help="only the rows that say most")
    ap.add_argument("--only", help="only these rows, comma-separated (accuracy is one)")
    ap.add_argument("--keep", action="store_true", help="keep the other rows of the report, measured before")
    ap.add_argument("--list", action="store_true", help="name the rows and end")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--repetitions", type=int, default=3, help="in a round, where a run is short")
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--troupe-options", default="", help="more options of `troupe bench`, as one argument")
    ap.add_argument("--json", action="store_true", help="print the JSON report, not the table")
    return ap.parse_args()


def main():
    a = parse()
    run = sides.Run(a)
    chosen = list(rows.all_rows(run))
    names = [row.name for row in chosen] + ["accuracy"]
    if a.list:
        print("\n".join(names))
        return
    wanted = a.only.split(",") if a.only else [r.name for r in chosen if r.quick or not a.quick] + ["accuracy"]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(names)}")

    report = {"rows": []}
    if a.keep and os.path.exists(a.report):
        with open(a.report, encoding="utf-8") as f:
            report = json.load(f)
    report.update(time=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), machine=machine(), threads=a.threads,
                  rounds=a.rounds, model=os.path.basename(a.model))
    run.about = report.get("about", {})
    for row in chosen:
        if row.name in wanted:
            print(f"compare: {row.name}", file=sys.stderr)
            measured = {**{r["name"]: r for r in report["rows"]}, row.name: measure(run, row)}
            report["rows"] = [measured[name] for name in names if name in measured]
            report["about"] = run.about
            save(a.report, report)
            print("\n".join(lines_of(report, measured[row.name])), file=sys.stderr)
    if "accuracy" in wanted:
        print("compare: accuracy", file=sys.stderr)
        report["accuracy"] = accuracy.measure(run)
        save(a.report, report)
    print(json.dumps(report) if a.json else "\n".join(table(report)))


if __name__ == "__main__":
    main()
