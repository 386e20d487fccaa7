#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""bench/table.py: rows of figures that are known."""
import json
import pathlib
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "table.py"

# Three rounds of plain, stream, stream, plain, on a machine that gets slower within each. The ratio is
# that of the means within a round; that of the medians of all would be 0.55.
FIGURES = """\
x 1 plain 110
x 1 stream 60
x 1 stream 40
x 1 plain 90
x 2 plain 220
x 2 stream 250
x 2 stream 230
x 2 plain 180
y 1 plain 1
y 1 stream 3
x 3 plain 55
x 3 stream 55
x 3 stream 55
x 3 plain 45
"""
X = ["x", "100 k/s", "55.0 k/s", "0.50", "1.10", "1.20"]


def table(words, text):
    done = subprocess.run([sys.executable, "-B", TABLE, *words], input=text, capture_output=True,
                          text=True, check=True)
    return done.stdout.splitlines()


def cells(line):
    """A line of the table for terminals, by its columns."""
    figures, ratios, goals, verdict = line.split(" | ")
    return [figures[:25].strip(), figures[26:37].strip(), figures[38:].strip(), *ratios.split(),
            *goals.split(), verdict]


def expect(got, wanted):
    assert got == wanted, (got, wanted)


def check_ratios():
    for goals, wanted in (("0:0", ["-", "-", "for comparison"]),
                          ("1.2:1.3", [">=1.2", ">=1.3", "MISSES the limit"]),
                          ("1.1:1.3", [">=1.1", ">=1.3", "within the limit"]),
                          ("1:1.1", [">=1", ">=1.1", "reaches the aim"])):
        lines = table(["ratios", "plain", "stream", "x:k/s:" + goals], FIGURES)
        expect([cells(line) for line in lines],
               [X + wanted[:2] + [wanted[2] + ", noisy (spread of the base 4.0x)"]])
    expect(table(["ratios", "--markdown", "plain", "stream", "x:k/s:1:1.1", "y:k/s:0:0"], FIGURES),
           ["| %s |" % " | ".join(X + [">=1", ">=1.1"]),
            "| y | 1.00 k/s | 3.00 k/s | 3.00 | 3.00 | 3.00 | - | - |"])


def check_rows():
    row = {"row": "r", "unit": "us", "better": "lower", "ratio": False, "xsock": 3, "min": 0,
           "median": 3, "max": 4, "limit": 0, "aim": 0}
    for median, verdict in ((3, "MISSES the limit"), (0, "reaches the aim")):
        got = table(["rows"], json.dumps([dict(row, median=median)]))
        expect(cells(got[0])[0:3] + cells(got[0])[6:], ["r", "-", "3.00 us", "<=0", "<=0", verdict])
    expect(table(["rows"], json.dumps([{"row": "r", "ratio": True, "error": "no veth"}])),
           ["%-25s not measured: no veth" % "r"])


if __name__ == "__main__":
    check_ratios()
    check_rows()
    print("table: ok")
