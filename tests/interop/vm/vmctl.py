#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Drives a guest that run-vm.sh started.

    vmctl.py [-n NAME] wait [SECONDS]         until the guest answers
    vmctl.py [-n NAME] alive                  exit status 0 while its QEMU runs
    vmctl.py [-n NAME] [-T SECONDS] run CMD   runs CMD in the guest, prints its output and exits
                                              with its status; 124 when no answer came
    vmctl.py [-n NAME] stop                   powers off; ends the process if need be
    vmctl.py [-n NAME] share                  prints the host's side of the guest's /share
"""
import argparse
import os
import signal
import socket
import sys
import tempfile
import time

RUN = os.environ.get("SIW_RUN") or os.path.join(tempfile.gettempdir(), "xsock-siw-%d" % os.getuid())
END = b"\n\x01RC "


class Guest:
    def __init__(self, name):
        self.folder = os.path.join(RUN, name)
        self.agent = os.path.join(self.folder, "agent.sock")

    def pid(self):
        """The QEMU process; 0 when it is gone. A number that another program has by now is not ours."""
        try:
            with open(os.path.join(self.folder, "pid")) as f:
                pid = int(f.read())
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                return pid if self.agent.encode() in f.read() else 0
        except (OSError, ValueError):
            return 0

    def connect(self, end):
        s = socket.socket(socket.AF_UNIX)
        # run-vm.sh wrote the pid before QEMU's own command line was in place.
        grace = time.monotonic() + 2
        while True:
            try:
                s.connect(self.agent)
                return s
            except OSError:
                now = time.monotonic()
                if now > end or (now > grace and not self.pid()):
                    raise TimeoutError("the guest's agent is not there") from None
                time.sleep(0.05)

    def run(self, command, timeout):
        end = time.monotonic() + timeout
        # A unique tag tells this answer from what an earlier caller left behind.
        tag = "@%d.%d@" % (os.getpid(), time.monotonic_ns())
        line = " ".join(command.split("\n")).strip()
        answer, started = b"", False
        with self.connect(end) as s:
            s.sendall(("echo '%s'; %s\n" % (tag, line)).encode())
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError("no answer in %.0f s; had %r" % (timeout, answer[-200:]))
                s.settimeout(left)
                try:
                    data = s.recv(65536)
                except socket.timeout:
                    continue
                if not data:
                    raise ConnectionError("the guest went away")
                answer += data
                if not started:
                    at = answer.find(tag.encode() + b"\n")
                    if at < 0:
                        continue
                    answer, started = answer[at + len(tag) + 1:], True
                at = answer.find(END)
                if at >= 0 and b"\n" in answer[at + len(END):]:
                    return int(answer[at + len(END):].split(b"\n")[0]), answer[:at]

    def stop(self):
        if not self.pid():
            return
        try:
            self.run("sync; echo o > /proc/sysrq-trigger", 2)
        except (OSError, TimeoutError):
            pass
        for signal_number, seconds in ((0, 5), (signal.SIGTERM, 5), (signal.SIGKILL, 2)):
            pid = self.pid()
            if not pid:
                return
            os.kill(pid, signal_number)
            end = time.monotonic() + seconds
            while self.pid() and time.monotonic() < end:
                time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", dest="name", default="guest")
    parser.add_argument("-T", dest="timeout", type=float, default=60.0)
    parser.add_argument("verb", choices=("wait", "alive", "run", "stop", "share"))
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    guest = Guest(arguments.name)
    if arguments.verb == "share":
        print(os.path.join(guest.folder, "share"))
    elif arguments.verb == "alive":
        return 0 if guest.pid() else 1
    elif arguments.verb == "stop":
        guest.stop()
    else:
        wait = arguments.verb == "wait"
        seconds = float(arguments.rest[0]) if wait and arguments.rest else arguments.timeout
        try:
            status, output = guest.run("true" if wait else " ".join(arguments.rest), seconds)
        except (OSError, TimeoutError) as error:
            print("siw guest %s: %s" % (arguments.name, error), file=sys.stderr)
            return 124
        sys.stdout.buffer.write(output.rstrip(b"\n") + (b"\n" if output.strip() else b""))
        return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
