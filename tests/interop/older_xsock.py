#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""This build and an xsock from before the extension frames, as client and as server: pings, Sends,
Writes and Reads of `xsock perf`, and sockets in DDPMODE must work both ways, and the recordings must
show that the older one saw a flag that it ignored and no frame. The same programs of this build with
each other show the frames, and none where either end turned them off.

    older_xsock.py BUILD [OLDER-BUILD]

OLDER-BUILD is where an older xsock was built (XSOCK_OLDER_BUILD). Without one, the last commit before
the frames is taken from the history and built in the cache folder, which takes minutes the first
time. Exit status 77 when there is neither.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

COMMIT = "168ef3c"
TOP = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 60
MARK_OF_REQUEST, MARK_OF_REPLY, EXTENSIONS = 4, 2, 1  # of the flags of start-up frames
failures = []


def skip(why):
    print("SKIPPED: %s: this xsock is NOT tested against an older one" % why, file=sys.stderr)
    sys.exit(77)


def build_older():
    """Builds COMMIT in the cache folder, once."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "xsock" / ("older-" + COMMIT)
    source, build = folder / "source", folder / "build"
    if (folder / "complete").exists():
        return build
    git = ["git", "-C", str(TOP)]
    try:
        known = subprocess.run(git + ["cat-file", "-e", COMMIT + "^{commit}"], check=False,
                               stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        known = False
    if not known:
        skip("no history with commit %s, and XSOCK_OLDER_BUILD is not set" % COMMIT)
    print("building %s in %s" % (COMMIT, build), flush=True)
    source.mkdir(parents=True, exist_ok=True)
    tar = subprocess.run(git + ["archive", COMMIT], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=tar, check=True)
    subprocess.run(["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=Release", "-DXSOCK_WERROR=OFF"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(build), "--target", "xsock_program",
                    "example_echo_socket"], check=True, stdout=subprocess.DEVNULL)
    (folder / "complete").touch()
    return build


class End:
    """The programs of one build, and how they are started."""

    def __init__(self, name, build, **environment):
        self.name = name
        self.build = pathlib.Path(build)
        self.environment = environment

    def command(self, program, arguments):
        path = self.build / {"xsock": "tools/xsock", "echo": "examples/echo_socket"}[program]
        return [str(path)] + [str(a) for a in arguments]

    def start(self, program, arguments, recording=None):
        environment = dict(os.environ, XSOCK_STAT="off", **self.environment)
        if recording is not None:
            environment["XSOCK_PCAP"] = str(recording)
        return subprocess.Popen(self.command(program, arguments), env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def port_of(server):
    """The port that a server says it listens on."""
    for line in server.stdout:
        found = re.search(r"listening on port (\d+)", line)
        if found:
            return int(found.group(1))
    raise RuntimeError("the server does not start")


# name, program, arguments of the server, arguments of the client ({} is the port), and whether the
# server ends by itself
EXCHANGES = [
    ("ping", "xsock", ["ping", "--listen", "--once", "127.0.0.1:0"],
     ["ping", "-c", "20", "-i", "0", "-s", "4000", "127.0.0.1", "{}"], True),
    ("rping", "xsock", ["ping", "--rping", "--listen", "--once", "-s", "3000", "127.0.0.1:0"],
     ["ping", "--rping", "-c", "20", "-i", "0", "-s", "3000", "127.0.0.1", "{}"], True),
    ("perf", "xsock", ["perf", "server", "--once", "127.0.0.1:0"],
     ["perf", "client", "-q", "--no-tcp", "-t", "latency,bandwidth", "-s", "64,100000", "-n", "200",
      "-r", "1", "127.0.0.1", "{}"], True),
    ("DDPMODE", "echo", ["server", "0", "--ddp"],
     ["client", "127.0.0.1", "{}", "500", "--ddp"], False),
]


def exchange(server_end, client_end, what, recorder, recording):
    """Runs one of EXCHANGES; answers what went wrong, or None."""
    _, program, server_arguments, client_arguments, server_ends = what
    server = server_end.start(program, server_arguments,
                              recording if recorder is server_end else None)
    client = None
    try:
        port = port_of(server)
        client = client_end.start(program, [a.replace("{}", str(port)) for a in client_arguments],
                                  recording if recorder is client_end else None)
        said, _ = client.communicate(timeout=LIMIT_S)
        if client.returncode != 0:
            return "the client: %s" % said.strip()
        if not server_ends:
            server.terminate()
        said, _ = server.communicate(timeout=LIMIT_S)
        if server_ends and server.returncode != 0:
            return "the server: %s" % said.strip()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        for process in (server, client):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    return None


def recorded(end, recording):
    """(flags of Requests, flags of Replies, extension frames, FPDUs) of a recording."""
    decoded = subprocess.run(end.command("xsock", ["decode", "--check", "--json", recording]),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if decoded.returncode != 0:
        raise RuntimeError("xsock decode --check: %s" % decoded.stderr.strip())
    frames = json.loads(decoded.stdout)["frames"]

    def flags(kind):
        return {f["flags"] & 7 for f in frames if f["kind"] == kind}

    def count(kind):
        return sum(f["kind"] == kind for f in frames)

    return flags("request"), flags("reply"), count("extension_frame"), count("fpdu")


def row(server_end, client_end, recorder, request, reply, frames):
    """All exchanges with these two ends; what the recordings must show of each connection."""
    title = "server %s, client %s" % (server_end.name, client_end.name)
    for what in EXCHANGES:
        with tempfile.TemporaryDirectory() as folder:
            recording = pathlib.Path(folder) / "wire.pcapng"
            wrong = exchange(server_end, client_end, what, recorder, recording)
            if wrong is None:
                try:
                    requests, replies, seen, fpdus = recorded(recorder, recording)
                except RuntimeError as error:
                    wrong = str(error)
                else:
                    if requests != {request} or replies != {reply}:
                        wrong = "flags of Requests %s and Replies %s, not %d and %d" % (
                            requests, replies, request, reply)
                    elif fpdus == 0 or (seen != 0) != frames or seen % 2 != 0:
                        wrong = "%d FPDUs, %d extension frames" % (fpdus, seen)
        print("%s  %s: %s%s" % ("ok  " if wrong is None else "FAIL", title, what[0],
                                "" if wrong is None else ": " + wrong), flush=True)
        if wrong is not None:
            failures.append(title)


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    older_build = sys.argv[2] if len(sys.argv) == 3 else os.environ.get("XSOCK_OLDER_BUILD")
    if older_build and not os.path.exists(os.path.join(older_build, "tools", "xsock")):
        skip("no tools/xsock in %s" % older_build)
    older = End("older", older_build or build_older())
    new = End("this", sys.argv[1])
    without = End("this without frames", sys.argv[1], XSOCK_EXTENSIONS="0")

    both = MARK_OF_REQUEST | EXTENSIONS
    row(older, new, new, both, MARK_OF_REPLY, False)
    row(new, older, new, MARK_OF_REQUEST, MARK_OF_REPLY, False)
    row(new, End("this", sys.argv[1]), new, both, MARK_OF_REPLY | EXTENSIONS, True)
    row(new, without, new, MARK_OF_REQUEST, MARK_OF_REPLY, False)
    row(without, new, new, both, MARK_OF_REPLY, False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
