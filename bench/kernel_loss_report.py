#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""kernel_loss_report.py CSV TABLE PICTURE: a Markdown table and an SVG picture of what
tests/long/kernel-loss.sh has measured. Lines of CSV: round trip in us, percent lost or "reorder", and
what kernel_loss prints. The picture is of the messages of 228,480 bytes, or else of the largest."""

from report_files import write_report

WAYS = {"tcp": ("plain TCP", "#777777"), "user": ("user level", "#1b6ca8"),
        "in-order": ("module, in order", "#d1662c"), "ahead": ("module, behind holes", "#2c8a4b")}
# Title, mode, column behind the mode's name, logarithmic
CURVES = [("time of a message, 50th percentile, ms", "ping", 2, True),
          ("the same, 99th", "ping", 3, True),
          ("work after the last segment, 50th percentile, thousand instructions", "ping", 4, False),
          ("megabytes a second, 4 outstanding", "stream", 7, True),
          ("thousand instructions for a MiB", "stream", 8, False),
          ("percent of the bytes placed behind a hole", "ping", 6, False)]
WIDTH, HEIGHT, LEFT, TOP = 250, 150, 60, 30


def read(name):
    rows = {}
    with open(name, encoding="ascii") as file:
        for line in file:
            round_trip, loss, way, mode, *rest = line.strip().split(",")
            numbers = [float(field) if field else None for field in rest]
            rows[int(round_trip), loss, int(rest[0]), way, mode] = numbers
    return rows


def value(rows, key, column):
    row = rows.get(key)
    if row is None or row[column] is None:
        return None
    return row[column] / (1000 if column in (2, 3) else 1)


def order(loss):
    return 1000.0 if loss == "reorder" else float(loss)


def in_words(loss):
    return loss if loss == "reorder" else loss + " %"


def number(x):
    if x is None:
        return "–"
    return "%.0f" % x if x >= 100 else "%.1f" % x if x >= 10 else "%.2f" % x


def table(rows):
    lines = ["| message, round trip | lost | " + " | ".join(name for name, _ in WAYS.values()) + " |",
             "|---|---|" + "---|" * len(WAYS)]
    for size, round_trip, loss in sorted({(k[2], k[0], k[1]) for k in rows},
                                         key=lambda k: (k[0], k[1], order(k[2]))):
        cells = []
        for way in WAYS:
            figures = [number(value(rows, (round_trip, loss, size, way, mode), column))
                       for _, mode, column, _ in CURVES]
            cells.append(" / ".join(figures if way == "ahead" else figures[:-1]))
        lines.append("| %d B, %g ms | %s | %s |" % (size, round_trip / 1000, in_words(loss),
                                                    " | ".join(cells)))
    return "\n".join(lines) + "\n"


class Panel:
    """Curves over the losses, at a place in the picture."""

    def __init__(self, x, y, losses, curves, logarithmic):
        import math
        self.x, self.y, self.losses, self.curves = x, y, losses, curves
        self.scale = math.log10 if logarithmic else float
        values = [v for curve in curves.values() for v in curve if v is not None and
                  (v > 0 or not logarithmic)] or [1]
        self.low = min(values) / 1.2 if logarithmic else 0
        self.high = (max(values) or 1) * 1.15

    def point(self, place, v):
        across = (WIDTH - LEFT) / max(1, len(self.losses) - 1)
        low, high = self.scale(self.low), self.scale(self.high)
        return (self.x + LEFT + place * across,
                self.y + HEIGHT - (HEIGHT - TOP) * (self.scale(v) - low) / (high - low))

    def shapes(self):
        for v in (self.low, (self.low * self.high) ** 0.5 if self.low else self.high / 2, self.high):
            _, y = self.point(0, v)
            yield '<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="#ddd"/>' % (
                self.x + LEFT, y, self.x + WIDTH, y)
            yield '<text x="%.0f" y="%.1f" text-anchor="end">%s</text>' % (
                self.x + LEFT - 5, y + 4, number(v))
        for place, loss in enumerate(self.losses):
            x, _ = self.point(place, self.high)
            yield '<text x="%.0f" y="%.0f" text-anchor="middle">%s</text>' % (
                x, self.y + HEIGHT + 14, loss)
        for way, curve in self.curves.items():
            points = [self.point(place, v) for place, v in enumerate(curve)
                      if v is not None and (v > 0 or not self.low)]
            yield '<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' % (
                WAYS[way][1], " ".join("%.1f,%.1f" % p for p in points))


def picture(rows):
    sizes = {k[2] for k in rows}
    size = 228480 if 228480 in sizes else max(sizes)
    round_trips = sorted({k[0] for k in rows if k[2] == size})
    losses = sorted({k[1] for k in rows if k[2] == size}, key=order)
    shapes = ['<text x="%d" y="18" font-weight="bold">%d bytes; lost: percent of the segments</text>'
              % (LEFT, size)]
    for row, (title, mode, column, logarithmic) in enumerate(CURVES):
        y = 30 + row * (HEIGHT + 50)
        shapes.append('<text x="%d" y="%d" font-weight="bold">%s</text>' % (LEFT, y + 14, title))
        for place, round_trip in enumerate(round_trips):
            x = place * (WIDTH + 20)
            ways = ["ahead"] if column == 6 else list(WAYS)
            curves = {way: [value(rows, (round_trip, loss, size, way, mode), column)
                            for loss in losses] for way in ways}
            shapes.extend(Panel(x, y, losses, curves, logarithmic).shapes())
            shapes.append('<text x="%d" y="%d" text-anchor="end">round trip %g ms</text>'
                          % (x + WIDTH, y + 28, round_trip / 1000))
    bottom = 30 + len(CURVES) * (HEIGHT + 50) + 10
    for place, (name, colour) in enumerate(WAYS.values()):
        shapes.append('<text x="%d" y="%d" fill="%s" font-weight="bold">%s</text>'
                      % (LEFT + place * 190, bottom, colour, name))
    width = len(round_trips) * (WIDTH + 20) + 20
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
            'font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" '
            'fill="white"/>\n%s\n</svg>\n') % (max(width, 840), bottom + 20, "\n".join(shapes))


if __name__ == "__main__":
    write_report(read, table, picture)
