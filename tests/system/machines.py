# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Two network namespaces with a link between them: two machines, as far as addresses go."""
import contextlib
import os
import shutil
import subprocess

import pytest

from stream_runs import TIMEOUT


class Machine:
    """A network namespace, which ends with its process."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "echo; read end"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b"\n":
            self.holder.wait()
            pytest.skip("no network namespace can be made")

    def inside(self, *argv):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.holder.pid, "--", *argv]

    def ip(self, *argv):
        subprocess.run(self.inside("ip", *argv), check=True, timeout=TIMEOUT)

    def end(self):
        self.holder.stdin.close()
        self.holder.wait(TIMEOUT)
        self.holder.stdout.close()


@contextlib.contextmanager
def two_machines(near, far, *tools):
    """A Machine for each of these IPv4 addresses; skips where one of the tools is missing."""
    for tool in ("ip", "unshare", "nsenter", *tools):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            pytest.skip("%s is not there" % tool)
    with contextlib.ExitStack() as at_end:
        first, second = Machine(), Machine()
        at_end.callback(first.end)
        at_end.callback(second.end)
        first.ip("link", "add", "near", "type", "veth", "peer", "name", "far",
                 "netns", str(second.holder.pid))
        for machine, link, address in ((first, "near", near), (second, "far", far)):
            machine.ip("address", "add", address + "/24", "dev", link)
            machine.ip("link", "set", link, "up")
            machine.ip("link", "set", "lo", "up")
        yield first, second
