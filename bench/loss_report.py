#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""loss_report.py CSV TABLE PICTURE: makes a Markdown table and an SVG picture of what loss.sh has
measured. Lines of CSV: path, percent lost, operation, variant, round, count, and the 50th, 99th and
99.9th percentile in us. Of several rounds the medians are shown."""
import collections
import math
import statistics

from report_files import write_report

VARIANTS = ["TCP", "TCP with timers", "xsock without", "xsock"]
COLOURS = ["#555555", "#999999", "#d1662c", "#1b6ca8"]
PATHS = {"veth": "veth", "2ms": "2 ms round trip"}


def read(name):
    rows = collections.defaultdict(list)
    with open(name, encoding="ascii") as file:
        for line in file:
            path, percent, operation, variant, _, count, *figures = line.strip().split(",")
            rows[path, operation, float(percent), variant].append(
                [int(count), *map(float, figures)])
    return {key: [statistics.median(column) for column in zip(*samples)]
            for key, samples in rows.items()}


def in_words(us):
    for limit, unit, digits in ((1e3, "us", 0), (1e4, "ms", 1), (1e6, "ms", 0)):
        if us < limit:
            return "%.*f %s" % (digits, us if unit == "us" else us / 1e3, unit)
    return "%.1f s" % (us / 1e6)


def table(rows):
    lines = ["| path, message | lost, each way | " + " | ".join(VARIANTS) + " |",
             "|---|---|" + "---|" * len(VARIANTS)]
    for path, operation, percent in sorted({k[:3] for k in rows},
                                           key=lambda k: (k[0] != "veth", k[1] != "64 B", k[2])):
        cells = []
        for variant in VARIANTS:
            row = rows.get((path, operation, percent, variant))
            cells.append(" / ".join(map(in_words, row[1:])) if row else "")
        lines.append("| %s, %s | %g %% | %s |" % (PATHS[path], operation, percent,
                                                  " | ".join(cells)))
    return "\n".join(lines) + "\n"


def picture(rows):
    """99th percentiles over loss, a panel for each path and message, logarithmic upwards."""
    width, height, left, top = 380, 260, 70, 40
    shapes = []

    def text(x, y, words, more=""):
        shapes.append('<text x="%.0f" y="%.0f" %s>%s</text>' % (x, y, more, words))

    panels = sorted({k[:2] for k in rows}, key=lambda k: (k[0] != "veth", k[1] != "64 B"))
    for number, (path, operation) in enumerate(panels):
        x0 = number % 2 * (width + 20) + left
        y0 = number // 2 * (height + 50) + top
        losses = sorted({k[2] for k in rows if k[:2] == (path, operation)})
        figures = [row[2] for k, row in rows.items() if k[:2] == (path, operation)]
        low = math.floor(math.log10(min(figures)))
        high = math.ceil(math.log10(max(figures)))
        across = (width - left) / max(1, len(losses) - 1)

        def point(place, us):
            return (x0 + place * across,
                    y0 + (height - top) * (high - math.log10(us)) / (high - low))

        text(x0, y0 - 12, "%s, %s: 99th percentile of a round trip" % (operation, PATHS[path]))
        for power in range(low, high + 1):
            _, y = point(0, 10.0 ** power)
            shapes.append('<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="#ddd"/>'
                          % (x0, y, x0 + width - left, y))
            text(x0 - 8, y + 4, in_words(10.0 ** power), 'text-anchor="end"')
        for place, percent in enumerate(losses):
            text(x0 + place * across, y0 + height - top + 18, "%g %%" % percent,
                 'text-anchor="middle"')
        for variant, colour in zip(VARIANTS, COLOURS):
            points = [point(place, rows[path, operation, percent, variant][2])
                      for place, percent in enumerate(losses)
                      if (path, operation, percent, variant) in rows]
            shapes.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>'
                          % (colour, " ".join("%.1f,%.1f" % p for p in points)))
    bottom = (len(panels) + 1) // 2 * (height + 50) + top
    for number, (variant, colour) in enumerate(zip(VARIANTS, COLOURS)):
        text(left + number * 180, bottom, variant, 'fill="%s" font-weight="bold"' % colour)
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" '
            'viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">'
            '<rect width="100%" height="100%" fill="white"/>\n{2}\n</svg>\n').format(
                2 * width + 40, bottom + 20, "\n".join(shapes))


if __name__ == "__main__":
    write_report(read, table, picture)
