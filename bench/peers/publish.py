#!/usr/bin/env python3
"""Draw compare.py's report as an SVG picture and write its table into a README, between two marks.

    publish.py compare.json --picture docs/bench.svg --readme bench/peers/README.md
"""
import argparse
import html
import json
import sys

BEGIN, END = "<!-- table of publish.py -->", "<!-- end of the table -->"
COLOURS = {"Troupe": "#d1495b", "llama.cpp": "#4f6d8f", "Transformers": "#8a9a5b"}
WIDTH, LEFT, BAR, GAP, TOP = 860, 150, 15, 10, 66
ROOM = 470  # of the longest bar


def caption(report):
    m, about = report["machine"], report.get("about", {})
    features = m["features"][-1] if m["features"] else "no AVX2"
    kernels = about.get("bf16", {}).get("kernel_set")
    said = [f"{m['cpu']} (family {m['family']}, model {m['model']}), {m['cpus']} CPUs",
            f"{features}, {m['memory_gib']} GiB",
            f"{report['model']}, {report['threads']} threads"]
    if kernels:
        said.append(f"Troupe's {kernels} kernels")
    if "llama.cpp" in about:
        said.append(f"llama.cpp {about['llama.cpp'][:9]}")
    rounds = {len(f["rounds"]) for row in report["rows"] for f in row["sides"].values()}
    said.append("rounds a row: " + " or ".join(map(str, sorted(rounds))))
    return "; ".join([*said, report["time"]])


def amount(value, unit):
    return f"{value:.2f} s" if unit == "s" else f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def text(x, y, content, size=12, weight="normal", anchor="start", colour="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{colour}">{html.escape(content)}</text>')


def drawn_row(row, y):
    """Its bars, on a scale of its own; what a row compares is lengths within it."""
    longest = max(f["max"] for f in row["sides"].values())
    parts = [text(16, y + BAR - 4, row["title"], weight="bold", size=11)]
    y += BAR + 1
    for label, figure in row["sides"].items():
        length = ROOM * figure["median"] / longest
        low, high = (LEFT + ROOM * figure[key] / longest for key in ("min", "max"))
        middle = y + (BAR - 3) / 2
        parts.append(text(LEFT - 6, y + BAR - 4, label, size=10, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 3}" rx="2" '
                     f'fill="{COLOURS[figure["program"]]}"/>')
        parts.append(f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#222" stroke-width="1.2"/>')
        notes = [amount(figure["median"], row["unit"])]
        if figure["share"]:
            notes.append(f"{figure['share']:.0%} of {row['bound']}")
        if figure["ratio"]:
            notes.append(f"{figure['ratio']['value']:.2f} x")
        parts.append(text(LEFT + ROOM + 8, y + BAR - 4, ", ".join(notes), size=10))
        y += BAR
    return parts, y + GAP


def picture(report):
    parts, y = [], TOP
    for row in report["rows"]:
        drawn, y = drawn_row(row, y)
        parts += drawn
    where = caption(report)
    head = [text(16, 24, "Troupe beside its peers, one random-weight model of 1 billion parameters", 16, "bold"),
            text(16, 40, where, 9, colour="#555"),
            text(16, 53, "Bars: medians, each row on its own scale; lines: least to greatest; x: ratio to the peer "
                         "(start, memory: less is better; taken core: to one thread)", 9, colour="#555")]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" '
                      f'viewBox="0 0 {WIDTH} {y}" font-family="Helvetica, Arial, sans-serif">',
                      f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>', *head, *parts, "</svg>"]) + "\n"


def table(report):
    yield f"Measured on {caption(report)}."
    yield ""
    yield "| work | program | median (min - max) | of the bound | from fp32 | ratio | goal | disturbed |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    accuracy = report.get("accuracy", {})
    for row in report["rows"]:
        for number, (label, figure) in enumerate(row["sides"].items()):
            found = accuracy.get(f"{figure['program']} {figure['weights']}")
            unit = "" if row["unit"] == "tokens/s" else " " + row["unit"]
            cells = ["" if number else row["title"], label,
                     f"{figure['median']:.2f} ({figure['min']:.2f} - {figure['max']:.2f}){unit}",
                     f"{figure['share']:.0%}" if figure["share"] else "",
                     f"{found['difference']:.3f}" if found else "",
                     f"{figure['ratio']['value']:.2f}" if figure["ratio"] else "",
                     f"{row['goal']}" if row["goal"] and not number else "",
                     f"{row['disturbed']:.0%}" if not number else ""]
            yield "| " + " | ".join(cells) + " |"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("report")
    ap.add_argument("--picture")
    ap.add_argument("--readme")
    a = ap.parse_args()
    with open(a.report, encoding="utf-8") as f:
        report = json.load(f)
    if a.picture:
        with open(a.picture, "w", encoding="utf-8") as f:
            f.write(picture(report))
    if a.readme:
        with open(a.readme, encoding="utf-8") as f:
            before, begin, rest = f.read().partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            sys.exit(f"{a.readme} lacks the marks {BEGIN} and {END}")
        with open(a.readme, "w", encoding="utf-8") as f:
            f.write(before + BEGIN + "\n" + "\n".join(table(report)) + "\n" + END + after)


if __name__ == "__main__":
    main()
