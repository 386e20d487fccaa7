# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs run under `xsock run --stream`, and what their exit summaries say."""
import re

TIMEOUT = 120  # seconds, for machines that are slow and busy


def command(xsock, stream, *program, policy=None):
    """`program` in that mode of the byte stream; None: without xsock."""
    if stream is None:
        return list(program)
    more = ["--policy", str(policy)] if policy else []
    return [xsock, "run", "--stream=" + stream, "--summary", *more, "--", *program]


def carried(said):
    """Sockets that the summary calls carried."""
    found = re.search(r"(\d+) carried over iWARP \(stream mode\)", said)
    return int(found.group(1)) if found else 0
