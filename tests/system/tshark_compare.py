#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Compares what `xsock decode --json` and tshark say of one capture, frame by frame, and both with
the opcodes that were expected. wireshark_test.sh calls it.

    tshark_compare.py DECODE.json TSHARK.tsv FIRST-OPCODES SECOND-OPCODES
    tshark_compare.py --count DECODE.json      how many FPDUs tshark must find

TSHARK.tsv has a line for each frame: number, source port, ULPDU lengths, opcodes, last flags. The
opcodes are hexadecimal digits, those of the initiator first; FPDUs with the L bit only. A "-" in
place of the tsv: nothing to compare with; a "?" in place of opcodes: any. A line for each difference; exit status 1 when there are
any.
"""
import json
import sys


def tshark_frames(path):
    """frame -> [(ULPDU length, opcode, last)]"""
    frames = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            number, lengths, opcodes, last = line.rstrip("\n").split("\t")
            if opcodes:
                flags = [flag in ("1", "True") for flag in last.split(",")]
                frames[int(number)] = list(zip([int(n) for n in lengths.split(",")],
                                               [int(o, 0) for o in opcodes.split(",")], flags))
    return frames


def fpdus_of(report):
    """The FPDUs; extension frames among them, which are FPDUs of opcode 15 to tshark."""
    for frame in report["frames"]:
        if frame["kind"] == "extension_frame":
            yield dict(frame, opcode=15, last=True)
        elif frame["kind"] == "fpdu":
            yield frame


def fpdus_for_tshark(report):
    """tshark 4.0 looks for no FPDU behind a start-up frame in the same segment."""
    startup = {f["packet"] for f in report["frames"] if f["kind"] in ("request", "reply")}
    for frame in fpdus_of(report):
        if frame["kind"] != "extension_frame" or frame["packet"] not in startup:
            yield frame


def decoded_frames(report):
    frames = {}
    for frame in fpdus_for_tshark(report):
        frames.setdefault(frame["packet"], []).append(
            (frame["ulpdu_bytes"], frame["opcode"], frame["last"]))
    return frames


def main():
    if sys.argv[1] == "--count":
        with open(sys.argv[2], encoding="utf-8") as text:
            print(sum(1 for _ in fpdus_for_tshark(json.load(text))))
        return 0
    decode_path, tshark_path, first, second = sys.argv[1:]
    with open(decode_path, encoding="utf-8") as text:
        report = json.load(text)
    wrong = []
    if report["mpa_connections"] != 1:
        wrong.append("%d MPA connections, not one" % report["mpa_connections"])
    decoded = decoded_frames(report)
    if tshark_path != "-":
        seen = tshark_frames(tshark_path)
        for number in sorted(set(decoded) | set(seen)):
            if decoded.get(number) != seen.get(number):
                wrong.append("frame %d: decode says %s, tshark %s" %
                             (number, decoded.get(number), seen.get(number)))
    for side, expected in (("first", first), ("second", second)):
        sent = "".join("%x" % f["opcode"] for f in fpdus_of(report)
                       if f["from"] == side and f["last"])
        if expected != "?" and sent != expected:
            wrong.append("the %s end sent %s, expected %s" % (side, sent, expected))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
