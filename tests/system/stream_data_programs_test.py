# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Data stores and brokers of Debian in the byte-stream mode, both ends under `xsock run --stream`.
What they answer is checked, and what was carried is what their exit summaries say.

    pytest-3 tests/system/stream_data_programs_test.py --build build/release
"""
import os
import shutil

import pytest

import compatibility
from stream_runs import carried, command, free_port, plain, run, serving


def need(*programs):
    for program in programs:
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin") is None:
            pytest.skip(program + " is not there")


def test_rows_become_a_page(tmp_path):
    file = tmp_path / "rows"
    for count in (3, 5):
        compatibility.append(file, "bash", "one thing", count, {"unknown-peer": 1}, False)
    compatibility.append(file, "bash", "another", 2, {}, True)
    with open(file, encoding="utf-8") as lines:
        page = compatibility.page(lines)
    version = compatibility.version("bash")
    assert version != "?"
    assert page.endswith(
        "| bash | %s | one thing | 5 carried, 1 plain: unknown-peer |\n"
        "| bash | %s | another | one end: as without |\n" % (version, version)), page


# ---- redis ----------------------------------------------------------------

class Redis:
    def __init__(self, xsock, stream, folder, *more):
        need("redis-server", "redis-cli", "redis-benchmark")
        self.port = free_port()
        folder.mkdir(exist_ok=True)
        self.serving = serving(
            command(xsock, stream, "redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                    "--save", "", "--dir", str(folder), *more), folder / "log", self.port)

    def __enter__(self):
        self.server = self.serving.__enter__()
        return self

    def __exit__(self, *error):
        return self.serving.__exit__(*error)

    def cli(self, *words, xsock=None, stream=None, **more):
        return run(command(xsock, stream, "redis-cli", "-p", str(self.port), *words), **more)

    def benchmark(self, *words, xsock=None, stream=None):
        done = run(command(xsock, stream, "redis-benchmark", "-p", str(self.port), "--csv", *words))
        assert "rror" not in done.stdout, done.stdout
        return done

    def get(self, *words):
        """What a client without xsock is told: `both` answers it as it comes."""
        return self.cli("--raw", *words).stdout.rstrip("\n")


@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_benchmark(xsock, row, tmp_path, pipeline):
    with Redis(xsock, "both", tmp_path / "redis") as redis:
        done = redis.benchmark("-n", "20000", "-c", "50", "-P", str(pipeline), "-t",
                               "set,get,incr,lpush,lrange_100,mset", xsock=xsock, stream="both")
        assert len(done.stdout.splitlines()) >= 6, done.stdout
        assert carried(done.stderr) >= 6 * 50 and not plain(done.stderr), done.stderr
        assert redis.get("get", "counter:__rand_int__") == "20000"
        assert redis.get("llen", "mylist") == "40000"
        said = redis.server.end()
    assert carried(said) >= 6 * 50, said
    row("redis-server", "redis-benchmark -P %d, 50 clients" % pipeline, said, done.stderr)
