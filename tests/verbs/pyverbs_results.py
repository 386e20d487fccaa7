#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Reads what rdma-core's Python tests said.

Exit status 1 when a test has failed, one of those that must hold has not, or one that must be refused
ended in another way.
"""
import argparse
import collections
import re
import sys

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


def expected_in(path):
    lines = (line.strip() for line in open(path))
    return [line for line in lines if line and not line.startswith("#")]


def put(page, device, lines):
    text = open(page).read()
    begin = "<!-- python tests, %s -->\n" % device
    end = "<!-- end of python tests, %s -->" % device
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    open(page, "w").write(before + begin + "\n".join(lines) + "\n" + end + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("log")
    parser.add_argument("report", help="gets one line for each test")
    parser.add_argument("--refused", help="tests that must end by a refusal")
    parser.add_argument("--expected", required=True, help="names of tests that must hold")
    parser.add_argument("--page", help="gets a table of the skipped ones between its marks")
    parser.add_argument("--device", default="iwarp", help="which marks")
    options = parser.parse_args()
    text = open(options.log, errors="replace").read()
    if not re.search(r"^Ran \d+ tests", text, re.M):
        print("FAILED  the tests did not come to their end")
        print(text[-2000:])
        return 1
    results = results_in(text)
    refused = refused_in(options.refused) if options.refused else {}
    with open(options.report, "w") as out:
        for name in sorted(results):
            out.write("%s %s\n" % (name, results[name]))
    held = [n for n, r in results.items() if r == "ok"]
    bad = sorted(n for n, r in results.items() if r in ("FAIL", "ERROR", "unexpected success"))
    bad += sorted(n for n, (words, _) in refused.items()
                  if results.get(n) != "expected failure" or words not in text)
    missing = sorted(set(expected_in(options.expected)) - set(held) - set(bad))
    skipped = sum(r.startswith("skipped") for r in results.values())
    print("%d ran, %d of them failed; %d skipped themselves, %d refused, as they must be"
          % (len(held) + len(bad), len(bad), skipped, len(refused)))
    for name in bad:
        print("FAILED  " + name)
        at = text.find("%s: %s (" % (results.get(name), name.split(".")[-1]))
        if at >= 0:
            print("    " + text[at:at + 1500].replace("\n", "\n    "))
    for name in missing:
        print("FAILED  %s must hold: %s" % (name, results.get(name, "it is not there")))
    if options.page:
        lines = ["Of %d tests %d hold; failed: %d, skipped by themselves: %d, refused: %d. For these"
                 " reasons:" % (len(results), len(held), len(bad), skipped, len(refused)), ""]
        put(options.page, options.device, lines + list(table(results, refused)))
    return 1 if bad or missing else 0


sys.exit(main())
