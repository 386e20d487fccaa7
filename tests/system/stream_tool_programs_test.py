# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Tools that move bytes, unmodified, under `xsock run --stream`: iperf3, nuttcp, sockperf, socat,
netcat, FTP, ssh, rsync.

    pytest-3 tests/system/stream_tool_programs_test.py --build build/release
"""
import hashlib
import json
import os
import random
import signal
import subprocess
import time

import pytest

from stream_runs import TIMEOUT, carried, free_port, full, wait_for
from stream_servers import (ENDS, await_port, chaos, check_chaos, check_client, check_server,
                            goes_on, meet, note, open_path_fixture, program, run, running)


def need_root():
    if os.getuid() != 0:
        pytest.skip("it takes root")


def large_file(path):
    """256 MiB that do not repeat within a block of any program."""
    with open(path, "wb") as file:
        for n in range(16):
            file.write(random.Random(n).randbytes(1 << 24))


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("reverse", [False, True], ids=["sends", "receives"])
@ENDS
@full
def test_iperf3(xsock, row, tmp_path, ends, reverse):
    port = free_port()
    with running(xsock, ends[0], tmp_path, program("iperf3"), "-s", "-1", "-p",
                 str(port)) as server:
        await_port(xsock, server, port)
        out, said = run(xsock, ends[1], "iperf3", "-c", "127.0.0.1", "-p", str(port), "-n", "100M",
                        "-P", "4", "-J", *(["-R"] if reverse else []))
        result = json.loads(out)
        check_client(ends, said, 5)
        summary = check_server(ends, server.wait(), 5)
    ended = result["end"]
    # The client ends the run when so much was sent: what is under way then does not count.
    assert "error" not in result and len(ended["streams"]) == 4, result
    assert ended["sum_sent"]["bytes"] >= 99_000_000, ended
    assert ended["sum_received"]["bytes"] >= 20_000_000, ended
    note(row, ends, "iperf3", "iperf3 -P 4" + (" -R" if reverse else ""), said, summary)


@pytest.mark.parametrize("direction", ["-t", "-r"], ids=["sends", "receives"])
@ENDS
@full
def test_nuttcp(xsock, row, tmp_path, ends, direction):
    port, data = free_port(), free_port()
    with running(xsock, ends[0], tmp_path, program("nuttcp"), "-S", "-1", "--nofork", "-P",
                 str(port)) as server:
        await_port(xsock, server, port)
        out, said = run(xsock, ends[1], "nuttcp", direction, "-P", str(port), "-p", str(data),
                        "-n", "100m", "-fparse", "127.0.0.1")
        server_said = server.wait()
    values = dict(word.split("=") for word in out.decode().split() if "=" in word)
    assert float(values["megabytes"]) == 100, out
    # The end that receives listens for the data.
    if ends == ("both", "both"):
        assert said.carried == said.sockets and server_said.carried == server_said.sockets
        assert said.connected + said.accepted == 2, said.said
    elif ends[1] is None:
        check_server(ends, server_said)
    else:
        check_client(ends, said)
    note(row, ends, "nuttcp", "nuttcp " + direction, said, server_said)


@pytest.mark.parametrize("mode", ["ping-pong", "throughput", "under-load"])
@ENDS
@full
def test_sockperf(xsock, row, tmp_path, ends, mode):
    port = free_port()
    with running(xsock, ends[0], tmp_path, program("sockperf"), "server", "--tcp", "-i",
                 "127.0.0.1", "-p", str(port)) as server:
        await_port(xsock, server, port)
        out, said = run(xsock, ends[1], "sockperf", mode, "--tcp", "-i", "127.0.0.1", "-p",
                        str(port), "-t", "1", *(["--mps", "1000"] if mode == "under-load" else []))
        check_client(ends, said)
        summary = check_server(ends, server.end(signal.SIGINT))
    text = out.decode()
    if mode == "throughput":
        assert "BandWidth is" in text, text
    else:
        for what in ("dropped", "duplicated", "out-of-order"):
            assert "# %s messages = 0" % what in text, text
    note(row, ends, "sockperf", "sockperf %s --tcp" % mode, said, summary)


@ENDS
@full
def test_socat_forks_for_each_connection(xsock, row, tmp_path, ends):
    port = free_port()
    sent = random.Random(3).randbytes(20_000_000)
    with running(xsock, ends[0], tmp_path, program("socat"),
                 "TCP-LISTEN:%d,bind=127.0.0.1,fork" % port, "EXEC:cat") as server:
        await_port(xsock, server, port)
        for _ in range(3):
            got, said = run(xsock, ends[1], "socat", "-t", str(TIMEOUT), "-",
                            "TCP:127.0.0.1:%d" % port, input=sent)
            assert got == sent
            check_client(ends, said)
        summary = check_server(ends, server.end(), 3)
    note(row, ends, "socat", "TCP-LISTEN with fork, EXEC, 20 MB each way", said, summary)


@ENDS
@full
def test_netcat_sends_both_ways(xsock, row, tmp_path, ends):
    port = free_port()
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(random.Random(4).randbytes(10_000_000))
    back.write_bytes(random.Random(5).randbytes(7_000_000))
    with open(back, "rb") as stdin, running(xsock, ends[0], tmp_path, program("nc.openbsd"), "-N",
                                            "-l", "127.0.0.1", str(port), stdin=stdin) as server:
        await_port(xsock, server, port)
        with open(there, "rb") as file:
            got, said = run(xsock, ends[1], "nc.openbsd", "-N", "127.0.0.1", str(port), stdin=file)
        check_client(ends, said)
        summary = check_server(ends, server.wait())
        assert got == back.read_bytes()
        assert server.out_path.read_bytes() == there.read_bytes()
    note(row, ends, "netcat-openbsd", "nc -N, files both ways", said, summary)


VSFTPD = """
background=NO
listen=YES
listen_address=127.0.0.1
listen_port={port}
anonymous_enable=YES
no_anon_password=YES
anon_root={folder}
write_enable=YES
anon_upload_enable=YES
anon_umask=022
secure_chroot_dir={empty}
xferlog_enable=NO
"""


@pytest.mark.parametrize("passive", [True, False], ids=["passive", "active"])
@ENDS
@full
def test_vsftpd_and_lftp(xsock, row, open_path, ends, passive):
    need_root()
    port = free_port()
    served, incoming, empty = (open_path / name for name in ("served", "served/incoming", "empty"))
    for folder in (served, incoming, empty):
        folder.mkdir(mode=0o755)
    incoming.chmod(0o777)
    sent = random.Random(6).randbytes(20_000_000)
    (served / "file").write_bytes(sent)
    (served / "file").chmod(0o644)
    conf = open_path / "vsftpd.conf"
    conf.write_text(VSFTPD.format(port=port, folder=served, empty=empty))
    script = ("set net:max-retries 1; set net:timeout %d; set ftp:passive-mode %s; "
              "open -u anonymous, ftp://127.0.0.1:%d; cls -1; get file -o %s/got; "
              "put %s/got -o incoming/back; quit" % (TIMEOUT, str(passive).lower(), port, open_path,
                                                    open_path))
    with running(xsock, ends[0], open_path, program("vsftpd"), str(conf)) as server:
        await_port(xsock, server, port, takes_streams=False)
        out, said = run(xsock, ends[1], program("lftp"), "-c", script)
        summary = server.end()
    assert b"file\n" in out, (out, said.said)
    assert (open_path / "got").read_bytes() == sent
    assert (incoming / "back").read_bytes() == sent
    check_plain(said, summary)
    note(row, ends, "vsftpd", "vsftpd and lftp, " + ("passive" if passive else "active"),
         said, summary)


def check_plain(client, server):
    """By the built-in policy, at whichever end there is a summary."""
    assert client.carried == client.listening, client.said
    assert server.carried == 0, server.said
    if server.sockets:
        assert server.plain_by("policy-tcp") >= 1, server.said


SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
Subsystem sftp internal-sftp
"""


@ENDS
@full
def test_scp(xsock, row, tmp_path, ends):
    need_root()
    port = free_port()
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    for name in ("host_key", "user_key"):
        subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f",
                        str(tmp_path / name)], check=True, timeout=TIMEOUT)
    conf = tmp_path / "sshd_config"
    conf.write_text(SSHD.format(folder=tmp_path))
    sent, got = tmp_path / "sent", tmp_path / "got"
    large_file(sent)
    with running(xsock, ends[0], tmp_path, program("sshd"), "-D", "-e", "-f", str(conf), "-o",
                 "ListenAddress=127.0.0.1:%d" % port) as server:
        await_port(xsock, server, port, takes_streams=False)
        to = ["-P", str(port), "-i", str(tmp_path / "user_key"), "-o", "StrictHostKeyChecking=no",
              "-o", "UserKnownHostsFile=/dev/null", "-F", "none", "-q"]
        client = run(xsock, ends[1], program("scp"), *to, str(sent), "127.0.0.1:%s" % got)[1]
        assert checksum(got) == checksum(sent)
        got.unlink()
        run(xsock, ends[1], "scp", *to, "127.0.0.1:%s" % sent, str(got))
        assert checksum(got) == checksum(sent)
        summary = server.end()
        check_plain(client, summary)
    note(row, ends, "openssh-server", "scp of 256 MiB both ways", client, summary)


RSYNCD = """
use chroot = no
address = 127.0.0.1
port = {port}
{user}
[files]
path = {folder}
read only = no
"""


@ENDS
@full
def test_rsync_daemon(xsock, row, tmp_path, ends):
    port = free_port()
    served, source, back = (tmp_path / name for name in ("served", "source", "back"))
    for folder in (served, source):
        folder.mkdir()
    large_file(source / "large")
    for n in range(100):
        (source / ("small%d" % n)).write_bytes(random.Random(n).randbytes(n * 100))
    conf = tmp_path / "rsyncd.conf"
    conf.write_text(RSYNCD.format(port=port, folder=served,
                                  user="uid = 0\ngid = 0" if os.getuid() == 0 else ""))
    with running(xsock, ends[0], tmp_path, program("rsync"), "--daemon", "--no-detach", "--config",
                 str(conf)) as server:
        await_port(xsock, server, port, takes_streams=False)
        client = run(xsock, ends[1], "rsync", "-a", str(source) + "/",
                     "rsync://127.0.0.1:%d/files/" % port)[1]
        run(xsock, ends[1], "rsync", "-a", "rsync://127.0.0.1:%d/files/" % port, str(back) + "/")
        summary = server.end()
        check_plain(client, summary)
    for file in source.iterdir():
        assert checksum(back / file.name) == checksum(file)
    note(row, ends, "rsync", "rsync daemon, 256 MiB and small files both ways", client, summary)


@chaos
@full
def test_socat_killed_and_stopped(xsock, tmp_path, victim, how):
    port = free_port()
    sent = b"".join(random.Random(n).randbytes(100_000_000) for n in range(4))
    (tmp_path / "sent").write_bytes(sent)
    with running(xsock, "both", tmp_path, program("socat"),
                 "TCP-LISTEN:%d,bind=127.0.0.1,fork" % port, "EXEC:cat", name="server") as server:
        await_port(xsock, server, port)
        with open(tmp_path / "sent", "rb") as file, running(
                xsock, "both", tmp_path, "socat", "-t", str(TIMEOUT), "-",
                "TCP:127.0.0.1:%d" % port, stdin=file, name="client") as client:
            check_chaos(server, client, victim, how, sent, client.out_path)
        if victim != "server":
            got, said = run(xsock, "both", "socat", "-t", str(TIMEOUT), "-",
                            "TCP:127.0.0.1:%d" % port, input=b"and others")
            assert got == b"and others"
            check_client(("both", "both"), said)


@chaos
@full
def test_iperf3_killed_and_stopped(xsock, tmp_path, victim, how):
    """Either end notices, in each direction, and ends."""
    port = free_port()
    with running(xsock, "both", tmp_path, program("iperf3"), "-s", "-1", "-p", str(port),
                 name="server") as server:
        await_port(xsock, server, port)
        with running(xsock, "both", tmp_path, "iperf3", "-c", "127.0.0.1", "-p", str(port), "-t",
                     "6", "--bidir", "--forceflush", name="client") as client:
            wait_for("traffic", lambda: "sec" in client.out_path.read_text() or
                     client.process.poll() is not None)
            time.sleep(1)
            assert client.process.poll() is None, client.said()
            meet(server, client, victim, how)
            server.process.wait(TIMEOUT)
            if (victim, how) != ("client", signal.SIGKILL):  # which leaves no last words
                assert carried(client.said()) > 0, client.said()
            assert (client.process.returncode == 0) == goes_on(how), client.said()
