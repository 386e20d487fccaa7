# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Says which rows are worse. Called by compare.sh, which measured them, with the directory of the samples
(ROUND-old.json, ROUND-new.json, ROUND-again.json) and the number of rounds."""
import json
import math
import pathlib
import statistics
import sys

# Below this a row is not called worse, however narrow its interval.
TOLERANCE = 1.03


def interval_of_median(values):
    """The 95 % confidence interval of the median, by the binomial distribution of the order statistics. Of
    fewer than six values it is all of them."""
    ordered = sorted(values)
    n = len(ordered)
    below = 0.0
    rank = 0
    while rank < n // 2:
        below += math.comb(n, rank) * 0.5**n
        if below > 0.025:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[n - 1 - rank]


def ratio(a, b):
    """Of figures that may be 0: two that are equal are as good, and anything is infinitely more than 0."""
    return 1.0 if a == b else math.inf if b == 0 else a / b


def read(directory, round_, name):
    rows = json.loads((directory / f"{round_}-{name}.json").read_text())
    return {row["row"]: row for row in rows}


def main():
    directory, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    samples = [
        tuple(read(directory, r, name) for name in ("old", "new", "again")) for r in range(1, rounds + 1)
    ]
    worse = []
    print(f"{'':32}{'OLD':>10} {'NEW':>10}        | {'NEW / OLD, 95 % interval':^26} | OLD / OLD")
    for row in samples[0][0]:
        higher = samples[0][0][row]["better"] == "higher"
        old, new, again = ([s[i][row]["xsock_by_round"][0] for s in samples] for i in range(3))
        # The two samples of OLD surround that of NEW, so their mean cancels a machine that drifts.
        between = [(a + b) / 2 for a, b in zip(old, again)]
        ratios = [ratio(b, n) if higher else ratio(n, b) for b, n in zip(between, new)]
        itself = [ratio(a, b) if higher else ratio(b, a) for a, b in zip(old, again)]
        low, high = interval_of_median(ratios)
        itself_low, itself_high = interval_of_median(itself)
        spread = max(itself_high, ratio(1, itself_low))
        verdict = ""
        if low > max(TOLERANCE, spread):
            verdict = "WORSE"
            worse.append(row)
        elif high < min(1 / TOLERANCE, 1 / spread):
            verdict = "better"
        unit = samples[0][0][row]["unit"]
        print(
            f"{row:32}{statistics.median(between):10.4g} {statistics.median(new):10.4g} {unit:6} | "
            f"{statistics.median(ratios):8.3f}  {low:.3f} to {high:.3f} | {spread:.3f}  {verdict}"
        )
    if rounds < 21:
        print(f"{rounds} rounds are few: ask for 21 or more before you believe it.")
    print("worse: " + (", ".join(worse) if worse else "none"))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
