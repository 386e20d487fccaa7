#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Reads what rdma-core's Python tests said.

    pyverbs_results.py LOG REFUSED REPORT [PAGE]

Writes one line for each test to REPORT and, between its marks, a table of the skipped ones into
PAGE. Exit status 1 when a test has failed, fewer than LEAST have run, or one of REFUSED ended in
another way than by its refusal.
"""
import collections
import re
import sys

LEAST = 60
VENDORS = re.compile(r"tests\.(test_(?:mlx[45]|efa|cuda)\w*)\.")


def results_in(text):
    """What became of each test, by its name."""
    results = {}
    # "name (module.Class.name)", perhaps a line of its description, "... result"
    pattern = re.compile(r"^(test_\w+) \((tests\.[\w.]+)\)(?:\n(?!test_)[^\n]*?)? ?\.\.\. ?"
                         r"(?:(?!\ntest_|\n=====).)*?(ok|FAIL|ERROR|expected failure|"
                         r"unexpected success|skipped [^\n]*)$",
                         re.M | re.S)
    for match in pattern.finditer(text):
        results[match.group(2)] = match.group(3)
    for match in re.finditer(r"^(FAIL|ERROR): \w+ \((tests\.[\w.]+)\)", text, re.M):
        results[match.group(2)] = match.group(1)
    return results


def refused_in(path):
    """Tests that the device refuses: the words of the refusal, and the reason."""
    found = {}
    for line in open(path):
        if line.startswith("tests."):
            name, words, reason = (part.strip() for part in line.split("|"))
            found[name] = (words, reason)
    return found


def short(name):
    parts = name.split(".")
    return "%s.%s" % (parts[1][len("test_"):], parts[-1][len("test_"):])


def table(results, refused):
    """Rows of Markdown: for each reason the tests that it kept from running."""
    by_reason = collections.defaultdict(list)
    vendors = collections.Counter()
    for name, result in sorted(results.items()):
        if not result.startswith("skipped"):
            continue
        vendor = VENDORS.match(name)
        if vendor:
            vendors[vendor.group(1).split("_")[1]] += 1
        else:
            by_reason[result[len("skipped "):].strip("'\"")].append(short(name))
    yield "| reason, in the tests' words | tests |"
    yield "|---|---|"
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        yield "| %s | %s |" % (reason.replace("|", "/"), ", ".join("`%s`" % n for n in names))
    for vendor, count in sorted(vendors.items()):
        yield "| of another vendor's hardware | %d of `%s` |" % (count, vendor)
    for name, (_, reason) in sorted(refused.items()):
        yield "| refused: %s | `%s` |" % (reason, short(name))


def put(page, lines):
    text = open(page).read()
    begin, end = "<!-- python tests -->\n", "<!-- end of python tests -->"
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    open(page, "w").write(before + begin + "\n".join(lines) + "\n" + end + after)


def main():
    log, refused_path, report = sys.argv[1:4]
    text = open(log, errors="replace").read()
    if not re.search(r"^Ran \d+ tests", text, re.M):
        print("FAILED  the tests did not come to their end")
        print(text[-2000:])
        return 1
    results, refused = results_in(text), refused_in(refused_path)
    with open(report, "w") as out:
        for name in sorted(results):
            out.write("%s %s\n" % (name, results[name]))
    held = [n for n, r in results.items() if r == "ok"]
    bad = sorted(n for n, r in results.items() if r in ("FAIL", "ERROR", "unexpected success"))
    bad += sorted(n for n, (words, _) in refused.items()
                  if results.get(n) != "expected failure" or words not in text)
    skipped = sum(r.startswith("skipped") for r in results.values())
    print("%d ran, %d of them failed; %d skipped themselves, %d refused, as they must be"
          % (len(held) + len(bad), len(bad), skipped, len(refused)))
    for name in bad:
        print("FAILED  " + name)
        at = text.find("%s: %s (" % (results.get(name), name.split(".")[-1]))
        if at >= 0:
            print("    " + text[at:at + 1500].replace("\n", "\n    "))
    if len(held) + len(bad) < LEAST:
        print("FAILED  fewer than %d ran" % LEAST)
    if len(sys.argv) > 4:
        lines = ["Of %d, %d hold and %d failed; %d skipped themselves and %d was refused, for these"
                 " reasons." % (len(results), len(held), len(bad), skipped, len(refused)), ""]
        put(sys.argv[4], lines + list(table(results, refused)))
    return 1 if bad or len(held) < LEAST else 0


sys.exit(main())
