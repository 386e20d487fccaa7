#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Which folder may include which: docs/architecture.md. The seams hold only as long as no code reaches
around them, and no compiler objects to that.
"""
import os
import re
import sys

import tree

# A folder may include itself, the installed headers, and these. `bench` and `tests` see everything.
# A folder within another is named here when its rule is its own: the longest name counts.
MAY_INCLUDE = {
    "include": set(),
    "base": set(),
    "mpa": {"base"},
    "trp": {"base"},  # not in the tree yet, as ddp_kernel: docs/architecture.md
    "ddp_user": {"base"},
    "shm": {"base"},
    "stream": {"base"},
    "transport": {"base", "mpa", "trp", "ddp_user", "shm"},
    # What a process has one of; both APIs are its clients.
    "libxsock/engine": {"base", "transport"},
    "libxsock": {"base", "mpa", "stream", "transport", "libxsock/engine"},
    # The files of an RDMA device: written by the tools, read by the engine.
    "verbs/files": {"base"},
    "verbs": {"base", "mpa", "trp", "ddp_user", "transport", "libxsock/engine", "verbs/files"},
    "examples": set(),
    "tools": {"base", "mpa", "ddp_user", "stream", "verbs/files"},
    "ddp_kernel": set(),
}

# Of a folder, only these: what stands on the device seam (base/device.hpp, base/polled_qp.hpp,
# base/poll_group.hpp) uses the transport's tools, and knows nothing of the software device.
ONLY_OF = {
    "libxsock": {
        "transport": {"at_rest.hpp", "clock.hpp", "descriptors.hpp", "event_fd.hpp", "fork.hpp",
                      "kernel_unpinned.hpp", "log.hpp", "plain_sockets.hpp",
                      "signal_blocker.hpp", "tcp.hpp"},
        "mpa": {"startup.hpp"},
    },
}

# The protocol cores do no I/O, know no time, roll no dice and run on one thread.
CORES = {"mpa", "trp", "ddp_user", "shm", "stream"}
NOT_IN_CORES = {
    "sys/socket.h", "unistd.h", "thread", "mutex", "atomic", "chrono", "random",
    # and their equals by other names
    "condition_variable", "future", "shared_mutex", "semaphore", "pthread.h", "ctime", "time.h",
    "sys/time.h", "poll.h", "sys/epoll.h", "fcntl.h", "netinet/in.h", "netinet/tcp.h",
    "arpa/inet.h", "uv.h",
}

INCLUDE = re.compile(r'^\s*#\s*(?:include|include_next|import)\b\s*(.*)$')
NAMED = re.compile(r'^(?:"([^"]+)"|<([^>]+)>)')


def resolve(top, includer, name, quoted):
    """The file of the tree that an #include means, as a path below `top`; None if it is none."""
    places = [os.path.dirname(includer)] if quoted else []
    for place in places + ["", "include"]:
        path = os.path.normpath(os.path.join(place, name))
        if os.path.isfile(os.path.join(top, path)):
            return path
    return None


def folder_of(path):
    """The name in the table that `path` belongs to; its first folder if there is none."""
    parts = path.split("/")[:-1]
    for count in range(len(parts), 0, -1):
        if "/".join(parts[:count]) in MAY_INCLUDE:
            return "/".join(parts[:count])
    return path.split("/")[0]


def breaches(top):
    for path in tree.files(top):
        folder = folder_of(path)
        if folder not in MAY_INCLUDE or not path.endswith(tree.SOURCES):
            continue
        for number, line in enumerate((tree.text(top, path) or "").splitlines(), 1):
            directive = INCLUDE.match(line)
            if not directive:
                continue
            where = "%s:%d" % (path, number)
            named = NAMED.match(directive.group(1))
            if not named:
                yield "%s: #include of a macro hides what is included" % where
                continue
            name = named.group(1) or named.group(2)
            if folder in CORES and name in NOT_IN_CORES:
                yield "%s: <%s> has no place in %s/ (sans-IO, one thread)" % (where, name, folder)
            found = resolve(top, path, name, quoted=named.group(1) is not None)
            if found is None:
                # A file that is not there yet still says where it would be.
                target = folder_of(name)
                if target not in MAY_INCLUDE and target not in ("tests", "bench"):
                    if named.group(1) is not None and folder != "ddp_kernel":
                        yield '%s: no file of the tree is "%s"' % (where, name)
                    continue
            else:
                target = folder_of(found)
            if target == "include":
                if not name.startswith("xsock/") and folder == "examples":
                    yield "%s: write <xsock/...> as a user would" % where
            elif target != folder and target not in MAY_INCLUDE[folder]:
                yield "%s: %s/ may not include %s/ (%s)" % (where, folder, target, name)
            elif os.path.basename(name) not in ONLY_OF.get(folder, {}).get(
                    target, {os.path.basename(name)}):
                yield "%s: %s/ may not include %s" % (where, folder, name)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
