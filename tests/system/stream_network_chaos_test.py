# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Data stores and brokers in the byte-stream mode while the way between both ends is cut for some
seconds, or resets their connections. What was cut goes on; what was reset ends, at both ends.

    tests/support/own_network.sh pytest-3 tests/system/stream_network_chaos_test.py --build build/release
"""
import contextlib
import os
import subprocess
import time

import pytest

from stream_runs import carried, full, wait_for
from stream_stores import MariaDb, Memcached, Mosquitto, Postgres, Redis, loaded, need

STORES = [Redis, Memcached, Postgres, MariaDb, Mosquitto]


@contextlib.contextmanager
def between(port, *target):
    """What becomes of the segments of established connections with that port, both ways; resets
    pass."""
    if os.environ.get("XSOCK_OWN_NETWORK") != "1":
        pytest.skip("it needs a network namespace of its own (tests/support/own_network.sh)")
    (iptables,) = need("iptables")
    try:
        for way in ("--dport", "--sport"):
            subprocess.run([iptables, "-A", "INPUT", "-p", "tcp", way, str(port), "--tcp-flags",
                            "SYN,RST", "NONE", "-j", *target], check=True)
        yield
    finally:
        subprocess.run([iptables, "-F", "INPUT"], check=True)


@pytest.mark.parametrize("kind", STORES)
@full
def test_a_way_that_is_cut_for_some_seconds(xsock, tmp_path, kind):
    with loaded(kind, xsock, tmp_path) as (store, load):
        with between(store.port, "DROP"):
            time.sleep(3)
        said = load.end(ask=lambda: None)
        assert store.is_right(said) and carried(said) > 0, said
        assert store.is_intact()
        assert carried(store.end()) > 0


@pytest.mark.parametrize("kind", STORES)
@full
def test_connections_that_are_reset_from_the_way(xsock, tmp_path, kind):
    with loaded(kind, xsock, tmp_path) as (store, load):
        before = store.connections()
        with between(store.port, "REJECT", "--reject-with", "tcp-reset"):
            wait_for("end of all connections", lambda: store.connections() == 0)
        # Some programs end then, some connect again: those go on until they have done their work.
        load.process.wait(timeout=120)
        wait_for("end of the others", lambda: store.connections() == 0)
        assert before > 0 and store.is_intact()
        assert store.is_right(store.run(*store.load(), stream="both").stdout)
        assert carried(store.end()) > 0
