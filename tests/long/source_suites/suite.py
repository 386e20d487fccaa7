# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What a suite of another project is to main.py: groups of cases, each of which one command runs."""
import ctypes
import dataclasses
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "system")]
from stream_servers import descendants  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
OWN_NETWORK = str(HERE.parent.parent / "support" / "own_network.sh")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
END = "the end of the group"  # a case of every group: it fails where a suite stops in the middle of a group


CARRIED = re.compile(r"^xsock: +(\d+) carried over iWARP \(stream mode\)", re.M)
PLAIN = re.compile(r"^xsock: +(\d+) passed through: ([^(\n]*[^(\s])", re.M)


def carried(output):
    """Sockets that the summaries in it call carried."""
    return sum(map(int, CARRIED.findall(output)))


def plain(output):
    """{reason: sockets} of those that the summaries in it call plain."""
    found = {}
    for count, reason in PLAIN.findall(output):
        found[reason] = found.get(reason, 0) + int(count)
    return found


class Missing(Exception):
    """This machine lacks what the suite needs."""


@dataclasses.dataclass
class Ran:
    """One run of a group."""
    cases: dict  # name: PASSED, FAILED or SKIPPED
    output: str


class Suite:
    """A suite, which a module beside this file derives. `place` is the folder of its own in the cache,
    with the sources in `place/source`, and `prefix` the words before a command: none, or xsock's."""
    package = ""        # Debian's source package; "" where none is fetched
    group_limit_s = 1800
    carried = 0         # sockets that all groups together carry at least
    # The beginning of "GROUP: CASE", and why that may fail under xsock.
    expected = {}
    recipe = ()         # commands that build it, in source/

    def __init__(self):
        self.place = None
        self.version = ""

    def prepare(self):
        """Fetches and builds, or finds it built. Raises Missing."""
        if self.package:
            done = subprocess.run([str(HERE / "fetch.sh"), self.package], stdout=subprocess.PIPE,
                                  text=True, check=False)
            if done.returncode:
                raise Missing("no source of " + self.package)
            self.place = pathlib.Path(done.stdout.strip())
            self.version = (self.place / "complete").read_text().strip()
            self.build()

    def build(self):
        stamp = hashlib.sha256(repr(self.recipe).encode()).hexdigest()
        built = self.place / "built"
        if built.exists() and built.read_text() == stamp:
            return
        for command in self.recipe:
            say("%s: %s" % (self.package, command))
            with open(self.place / "build.log", "ab") as log:
                if subprocess.run(["bash", "-ec", command], cwd=self.place / "source", stdout=log,
                                  stderr=log, check=False).returncode:
                    raise SystemExit("%s was not built: %s" % (self.package, log.name))
        built.write_text(stamp)

    def groups(self):
        raise NotImplementedError

    def run(self, prefix, group):
        """@return Ran"""
        raise NotImplementedError

    def call(self, argv, cwd=None, environment=None):
        """Runs it until its end, or for group_limit_s, in a network of its own. @return its status (None: too long) and what
        it printed, to both."""
        child = subprocess.Popen([OWN_NETWORK, *argv], cwd=cwd, env=dict(os.environ, **(environment or {})),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        # What it leaves behind may have its output open: the end is the end of the child.
        chunks = bytearray()
        os.set_blocking(child.stdout.fileno(), False)
        until = time.monotonic() + self.group_limit_s
        status = None
        while True:
            status = child.poll()
            while True:
                try:
                    chunk = os.read(child.stdout.fileno(), 1 << 16)
                except BlockingIOError:
                    break
                if not chunk:
                    break
                chunks += chunk
            if status is not None or time.monotonic() > until:
                break
            time.sleep(0.05)
        end_children()
        child.stdout.close()
        text = chunks.decode(errors="replace")
        if status is None:
            text += "\n(did not end within %d s)\n" % self.group_limit_s
        return status, text


def say(words):
    print(time.strftime("%H:%M:%S "), words, flush=True)


def adopt_orphans():
    """What a suite leaves behind becomes a child of this process, so that end_children() finds it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children():
    """Kills all that this process has started, and what that has."""
    while True:
        left = descendants(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)
