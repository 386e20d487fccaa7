# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""libuv: its tests, each in a process of its own, which is client and server in one loop for most."""
import suite

# Cases by the beginning of their names; "other" is the rest.
BEGINNINGS = ("tcp", "pipe", "poll", "ipc", "shutdown", "spawn", "signal", "udp")
# Cases without sockets.
FILES = ("fs_", "get_", "tty", "thread", "rwlock", "mutex", "cond", "semaphore", "barrier", "idna",
         "utf8", "dl", "hrtime", "timer", "loop_", "queue_", "strscpy", "strtok", "process_title")
SKIP = 7  # TEST_SKIP as an exit status


class Libuv(suite.Suite):
    package = "libuv1"
    carried = 100
    group_limit_s = 300  # of a case
    expected = {
        "tcp: tcp_try_write_error":
            "after a peer's close at once a writer sees the reset; here it may see EAGAIN before, as on "
            "a network, because the connection is still starting",
        "other: emfile":
            "it leaves no descriptor, and an epoll set with a member that is carried needs one more",
    }
    recipe = ("cmake -S . -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo",
              "cmake --build build -j 2 --target uv_run_tests")

    def names(self):
        _, said = self.call(["build/uv_run_tests", "--list"], cwd=self.place / "source",
                            environment={"UV_RUN_AS_ROOT": "1"})
        names = [line.split()[0] for line in said.splitlines()]  # behind it, its helpers
        return [name for name in names if not name.startswith(FILES)]

    def groups(self):
        return [*BEGINNINGS, "other"]

    def run(self, prefix, group):
        cases, said = {}, []
        for name in self.names():
            if group != next((begin for begin in BEGINNINGS if name.startswith(begin)), "other"):
                continue
            status, output = self.call(
                [*prefix, "build/uv_run_tests", name], cwd=self.place / "source",
                environment={"UV_RUN_AS_ROOT": "1", "UV_TEST_TIMEOUT_MULTIPLIER": "10",
                             "RES_OPTIONS": "attempts:0"})
            cases[name] = suite.PASSED if status == 0 else (
                suite.SKIPPED if status == SKIP else suite.FAILED)
            said.append("== %s: %s\n%s" % (name, status, output))
        return suite.Ran(cases, "".join(said))


SUITE = Libuv
