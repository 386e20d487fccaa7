# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Tables of the benchmarks, as xsock_bench prints them.

    table.py head [--markdown] BASE SUBJECT          the first lines
    table.py rows [--markdown] < JSON               of `xsock_bench --json`
    table.py ratios [--markdown] BASE SUBJECT ROW... < FIGURES

FIGURES are lines of row, round, mode and figure; a figure that a round has more than once is their mean.
A ROW is name:unit:limit:aim, 0 where nothing must hold; more is better, or less where both begin with `<`.
"""
import json
import os
import statistics
import sys

NOISY_SPREAD = 1.3  # of the base, between rounds


def number(value):
    return "%.*f" % (3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0, value)


def verdict(row):
    def reaches(limit):
        return row["median"] <= limit if row["better"] == "lower" else row["median"] >= limit
    if row.get("limit") is None:
        return "for comparison"
    if reaches(row["aim"]):
        return "reaches the aim"
    return "within the limit" if reaches(row["limit"]) else "MISSES the limit"


def goal(row, name):
    if row.get("limit") is None:
        return "-"
    return ("<=" if row["better"] == "lower" else ">=") + "%g" % row[name]


def line(row, markdown):
    if "error" in row:
        cells = [row["row"], "not measured: " + row["error"]]
        return "| %s | %s |" % tuple(cells) if markdown else "%-25s %s" % tuple(cells)
    base = "%s %s" % (number(row["tcp"]), row["unit"]) if row["ratio"] else "-"
    cells = [row["row"], base, ("%s %s" % (number(row["xsock"]), row["unit"])).rstrip(),
             *(number(row[name]) for name in ("min", "median", "max")),
             goal(row, "limit"), goal(row, "aim")]
    if markdown:
        return "| %s |" % " | ".join(cells)
    said = verdict(row)
    if row.get("noisy"):
        said += ", noisy (spread of the base %.1fx%s)" % (
            row.get("tcp_spread", 1),
            ", %.1f CPUs busy elsewhere" % row["foreign_cpus"] if "foreign_cpus" in row else "")
    hops = row.get("hop_ns_by_round")
    if hops:
        said += ", hop %.0f..%.0f ns" % (min(hops), max(hops))
    return "%-25s %11s %11s | %6s %6s %6s | %7s %7s | %s" % (*cells, said)


def head(base, subject):
    return "%-25s %11s %11s | %6s %6s %6s | %7s %7s | %s" % (
        "", base, subject, "min", "median", "max", "limit", "aim", "verdict")


def ratio_row(spec, figures, base, subject):
    """A row in the form of xsock_bench's JSON."""
    name, unit, limit, aim = spec.split(":")
    of = {mode: [statistics.mean(by_mode[mode]) for by_mode in figures[name].values()]
          for mode in (base, subject)}
    ratios = [a / b for a, b in zip(of[subject], of[base])]
    spread = max(of[base]) / min(of[base])
    better = "lower" if limit.startswith("<") else "higher"
    limit, aim = float(limit.lstrip("<")), float(aim.lstrip("<"))
    row = {"row": name, "unit": unit, "better": better, "ratio": True,
           "tcp": statistics.median(of[base]), "xsock": statistics.median(of[subject]),
           "min": min(ratios), "median": statistics.median(ratios), "max": max(ratios),
           "tcp_spread": spread, "noisy": spread > NOISY_SPREAD}
    if limit:
        row.update(limit=limit, aim=aim)
    return row


def read_figures(lines):
    """{row: {round: {mode: [figure]}}}"""
    figures = {}
    for each in lines:
        name, round_, mode, figure = each.split()
        by_mode = figures.setdefault(name, {}).setdefault(int(round_), {})
        by_mode.setdefault(mode, []).append(float(figure))
    return figures


def main(words):
    sys.stdout.reconfigure(line_buffering=True)
    markdown = "--markdown" in words
    what, *words = [word for word in words if word != "--markdown"]
    if what == "head":
        if markdown:
            print("| row | %s | %s | min | median | max | limit | aim |\n%s" % (*words, "|---" * 8 + "|"))
        else:
            print("%d CPUs, load %.1f when we began" % (os.cpu_count(), os.getloadavg()[0]))
            print(head(*words))
    elif what == "rows":
        for row in json.load(sys.stdin):
            print(line(row, markdown))
    else:
        base, subject, *specs = words
        figures = read_figures(sys.stdin)
        for spec in specs:
            print(line(ratio_row(spec, figures, base, subject), markdown))


if __name__ == "__main__":
    main(sys.argv[1:])
