# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Web servers, proxies and their clients, unmodified, under `xsock run --stream`.

    pytest-3 tests/system/stream_web_programs_test.py --build build/release
"""
import contextlib
import hashlib
import os
import random
import re
import signal
import subprocess
import time

import pytest

from stream_runs import NGINX_HTTP, NGINX_MAIN, TIMEOUT, free_port, full, listens, wait_for
from stream_servers import (ENDS, await_port, chaos, check_chaos, check_client, check_server,
                            descendants, goes_on, is_listed, note, open_path_fixture, program, run,
                            running)

NGINX = NGINX_MAIN + """
{main}
events {{ worker_connections 2000; }}
http {{
    access_log off;
""" + NGINX_HTTP + """
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port};
        {tls}
        root {folder}/files;
        client_max_body_size 0;
        location /put/ {{ dav_methods PUT; }}
    }}
}}
"""
TLS = """
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {folder}/cert.pem;
        ssl_certificate_key {folder}/key.pem;
"""


def make_files(folder):
    files = folder / "files"
    files.mkdir(exist_ok=True)
    for name, size in (("small", 1024), ("medium", 100_000), ("large", 5_000_000)):
        (files / name).write_bytes(random.Random(size).randbytes(size))
    folder.chmod(0o755)
    return files


def make_certificate(folder):
    subprocess.run([program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-keyout", str(folder / "key.pem"), "-out",
                    str(folder / "cert.pem")], check=True, stderr=subprocess.DEVNULL,
                   timeout=TIMEOUT)


@contextlib.contextmanager
def nginx(xsock, stream, folder, tls=False, main=""):
    """@return the running server, its port, and that of TLS if asked for"""
    make_files(folder)
    port, tls_port = free_port(), free_port()
    if tls:
        make_certificate(folder)
    (folder / "nginx.conf").write_text(NGINX.format(
        folder=folder, port=port, user="user root;" if os.getuid() == 0 else "", main=main,
        tls=TLS.format(folder=folder, port=tls_port) if tls else ""))
    with running(xsock, stream, folder, program("nginx"), "-e", str(folder / "error.log"), "-p",
                 str(folder), "-c", str(folder / "nginx.conf")) as server:
        for each in (port, tls_port) if tls else (port,):
            await_port(xsock, server, each)
        server.port, server.tls_port = port, tls_port
        yield server


def check_nginx(server):
    errors = (server.out_path.parent / "error.log").read_text()
    assert not re.search(r"\[(alert|emerg|crit)\]", errors), errors


def check_wrk(out):
    """Every answer was right, and all came. @return how many"""
    text = out.decode()
    assert "Socket errors" not in text and "Non-2xx" not in text, text
    return int(re.search(r"(\d+) requests in", text).group(1))


@ENDS
def test_wrk_on_nginx(xsock, row, tmp_path, ends):
    with nginx(xsock, ends[0], tmp_path) as server:
        out, said = run(xsock, ends[1], program("wrk"), "-t", "2", "-c", "100", "-d", "2s",
                        "http://127.0.0.1:%d/small" % server.port)
        assert check_wrk(out) > 100
        check_client(ends, said, 100)
        summary = check_server(ends, server.end(), 100)
    check_nginx(server)
    note(row, ends, "nginx", "wrk, 100 connections, 1 KiB", said, summary)


@ENDS
@full
def test_ab_on_nginx(xsock, row, tmp_path, ends):
    """A connection for each request, and connections that are kept."""
    with nginx(xsock, ends[0], tmp_path) as server:
        for more, connections in ((["-n", "5000"], 5000), (["-n", "20000", "-k"], 20)):
            out, said = run(xsock, ends[1], program("ab"), "-q", "-c", "20", *more,
                            "http://127.0.0.1:%d/small" % server.port)
            text = out.decode()
            assert re.search(r"Failed requests: +0\n", text), text
            assert re.search(r"Complete requests: +%s\n" % more[1], text), text
            assert "Non-2xx" not in text, text
            check_client(ends, said, connections)
        summary = check_server(ends, server.end(), 5020)
    check_nginx(server)
    note(row, ends, "nginx", "ab, 5,000 connections; ab -k", said, summary)


def curl(xsock, stream, *words, **named):
    return run(xsock, stream, program("curl"), "-sS", "--fail", "--insecure", "--max-time",
               str(TIMEOUT), *words, **named)


@ENDS
@full
def test_curl_over_tls_and_http2(xsock, row, tmp_path, ends):
    with nginx(xsock, ends[0], tmp_path, tls=True) as server:
        address = "https://127.0.0.1:%d/" % server.tls_port
        for version, streams in (("1.1", 1), ("2", 20)):
            words = []
            for n in range(streams):
                words += [address + "large", "-o", str(tmp_path / ("got%d" % n))]
            out, said = curl(xsock, ends[1], "--http" + version, "--parallel", "-w",
                             "%{http_version} ", *words)
            assert out.decode().split() == [version] * streams
            for n in range(streams):
                assert (tmp_path / ("got%d" % n)).read_bytes() == \
                    (tmp_path / "files" / "large").read_bytes()
            check_client(ends, said)
        summary = check_server(ends, server.end(), 2)
    check_nginx(server)
    note(row, ends, "nginx", "curl: TLS, HTTP/1.1 and HTTP/2", said, summary)


def huge_file(path):
    """1 GiB. @return its checksum"""
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for n in range(64):
            block = random.Random(n).randbytes(1 << 24)
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def checksum(xsock, stream, folder, address, *words):
    """Of what curl is sent, and curl's summary."""
    with running(xsock, stream, folder, program("curl"), "-sS", "--fail", *words, address,
                 stdout=subprocess.PIPE) as client:
        digest = hashlib.sha256()
        while block := client.process.stdout.read(1 << 20):
            digest.update(block)
        return digest.hexdigest(), client.wait()


@ENDS
@full
def test_nginx_sends_a_gibibyte(xsock, row, tmp_path, ends):
    with nginx(xsock, ends[0], tmp_path) as server:
        wanted = huge_file(tmp_path / "files" / "huge")
        got, said = checksum(xsock, ends[1], tmp_path, "http://127.0.0.1:%d/huge" % server.port)
        assert got == wanted
        check_client(ends, said)
        summary = check_server(ends, server.end())
    check_nginx(server)
    note(row, ends, "nginx", "sendfile of 1 GiB", said, summary)


def workers(server):
    """Processes of nginx that serve."""
    return set(descendants(server.pid))


@ENDS
@full
def test_nginx_reloads_under_load(xsock, row, tmp_path, ends):
    with nginx(xsock, ends[0], tmp_path) as server:
        address = "http://127.0.0.1:%d/" % server.port
        wanted = hashlib.sha256((tmp_path / "files" / "large").read_bytes()).hexdigest()
        with running(xsock, ends[1], tmp_path, program("ab"), "-q", "-c", "20", "-t", "8", "-n",
                     "1000000", address + "small") as load:
            first = workers(server)
            for n in range(3):
                before = workers(server)
                server.process.send_signal(signal.SIGHUP)
                got, said = checksum(xsock, ends[1], tmp_path, address + "large", "--limit-rate",
                                     "3M")
                assert got == wanted
                check_client(ends, said)
                assert load.process.poll() is None, "the load has ended"
                wait_for("new worker", lambda before=before: workers(server) - before)
            said = load.wait()
        text = load.out_path.read_text()
        assert re.search(r"Failed requests: +0\n", text) and "Non-2xx" not in text, text
        check_client(ends, said, 100)
        wait_for("end of the first workers", lambda: not workers(server) & first)
        summary = check_server(ends, server.end(signal.SIGQUIT), 100)
    check_nginx(server)
    note(row, ends, "nginx", "reload under load", said, summary)


# nginx gives a new binary no more of its environment than its configuration names.
KEPT = "".join("env %s;\n" % name for name in ("LD_PRELOAD", "XSOCK_STREAM", "XSOCK_SUMMARY"))


@ENDS
@full
def test_nginx_upgrades_its_binary_under_load(xsock, tmp_path, ends):
    """In the background, where alone it does so; the summary comes into a file."""
    files = make_files(tmp_path)
    port, summary, pid_file = free_port(), tmp_path / "summary", tmp_path / "nginx.pid"
    (tmp_path / "nginx.conf").write_text(NGINX.replace("daemon off;", "daemon on;").format(
        folder=tmp_path, port=port, user="user root;" if os.getuid() == 0 else "", main=KEPT,
        tls=""))
    summary.touch()
    argv = [program("nginx"), "-e", str(tmp_path / "error.log"), "-p", str(tmp_path), "-c",
            str(tmp_path / "nginx.conf")]
    if ends[0]:
        argv = [xsock, "run", "--stream=" + ends[0], "--", *argv]
    subprocess.run(argv, check=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
                   env=dict(os.environ, XSOCK_SUMMARY=str(summary)))
    old = new = int(pid_file.read_text())
    try:
        address = "http://127.0.0.1:%d/" % port
        wait_for("listener", lambda: listens(port) and (ends[0] is None or is_listed(xsock, port)))
        with running(xsock, ends[1], tmp_path, program("ab"), "-q", "-c", "20", "-t", "8", "-n",
                     "1000000", address + "small") as load:
            os.kill(old, signal.SIGUSR2)
            wait_for("new master", lambda: (tmp_path / "nginx.pid.oldbin").exists() and
                     pid_file.exists() and pid_file.read_text().strip() not in ("", str(old)), 20)
            new = int(pid_file.read_text())
            wait_for("new workers", lambda: descendants(new))
            os.kill(old, signal.SIGWINCH)
            got, said = checksum(xsock, ends[1], tmp_path, address + "large", "--limit-rate", "3M")
            assert got == hashlib.sha256((files / "large").read_bytes()).hexdigest()
            os.kill(old, signal.SIGQUIT)
            wait_for("end of the old master", lambda: not os.path.exists("/proc/%d" % old), 60)
            assert load.process.poll() is None, "the load has ended"
            said = load.wait()
        text = load.out_path.read_text()
        assert re.search(r"Failed requests: +0\n", text) and "Non-2xx" not in text, text
        check_client(ends, said, 100)
        got, said = curl(xsock, ends[1], address + "large")
        check_client(ends, said)
        os.kill(new, signal.SIGQUIT)
        wait_for("end of the new master", lambda: not os.path.exists("/proc/%d" % new), 60)
    finally:
        for master in {old, new}:
            for pid in [*descendants(master), master]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    lines = summary.read_text()
    carried = sum(int(n) for n in re.findall(r" stream=(\d+)", lines))
    assert (carried > 100) == (ends == ("both", "both")), lines


@contextlib.contextmanager
def haproxy(xsock, stream, folder, server_port, mode):
    """In front of that server."""
    port = free_port()
    (folder / "haproxy.cfg").write_text("""
defaults
    mode %s
    timeout connect %ds
    timeout client %ds
    timeout server %ds
    option splice-auto
frontend all
    bind 127.0.0.1:%d
    default_backend servers
backend servers
    server one 127.0.0.1:%d
""" % (mode, TIMEOUT, TIMEOUT, TIMEOUT, port, server_port))
    with running(xsock, stream, folder, program("haproxy"), "-db", "-f",
                 str(folder / "haproxy.cfg")) as proxy:
        await_port(xsock, proxy, port)
        proxy.port = port
        yield proxy


@pytest.mark.parametrize("mode", ["http", "tcp"])
@ENDS
@full
def test_haproxy_before_nginx(xsock, row, tmp_path, ends, mode):
    """The proxy is under xsock in all; `ends`: nginx, the client."""
    with nginx(xsock, ends[0], tmp_path) as server, \
            haproxy(xsock, "both", tmp_path, server.port, mode) as proxy:
        address = "http://127.0.0.1:%d/" % proxy.port
        for _ in range(3):
            got, said = curl(xsock, ends[1], address + "large")
            assert got == (tmp_path / "files" / "large").read_bytes()
            check_client(("both", ends[1]), said)
        out, said = run(xsock, ends[1], program("wrk"), "-t", "2", "-c", "20", "-d", "2s",
                        address + "small")
        assert check_wrk(out) > 20
        check_client(("both", ends[1]), said, 20)
        summary = proxy.end(signal.SIGUSR1)
        check_server((ends[0], "both"), server.end(), 4)
    check_nginx(server)
    assert summary.accepted >= 23 and summary.connected >= 4, summary.said
    if ends == ("both", "both"):
        assert summary.is_all_carried(), summary.said
    elif ends[1] is None:
        assert summary.plain_by("fallback-not-mpa") >= 23, summary.said
        assert summary.carried == summary.connected + summary.listening, summary.said
    else:
        assert summary.plain_by("unknown-peer") == summary.connected, summary.said
        assert summary.carried == summary.accepted + summary.listening, summary.said
    note(row, ends, "haproxy", "before nginx, mode " + mode, said, summary)


@ENDS
@full
def test_curl_and_ab_on_lighttpd(xsock, row, tmp_path, ends):
    port = free_port()
    files = make_files(tmp_path)
    (tmp_path / "lighttpd.conf").write_text("""
server.bind = "127.0.0.1"
server.port = %d
server.document-root = "%s"
server.errorlog = "%s/error.log"
""" % (port, files, tmp_path))
    with running(xsock, ends[0], tmp_path, program("lighttpd"), "-D", "-f",
                 str(tmp_path / "lighttpd.conf")) as server:
        await_port(xsock, server, port)
        said, summary = check_web_server(xsock, ends, tmp_path, server,
                                         "http://127.0.0.1:%d/" % port)
    note(row, ends, "lighttpd", "curl, ab, ab -k", said, summary)


def check_web_server(xsock, ends, folder, server, address):
    for _ in range(3):
        got, said = curl(xsock, ends[1], address + "large")
        assert got == (folder / "files" / "large").read_bytes()
        check_client(ends, said)
    for more in (["-n", "2000"], ["-n", "10000", "-k"]):
        out, said = run(xsock, ends[1], program("ab"), "-q", "-c", "20", *more, address + "medium")
        text = out.decode()
        assert re.search(r"Failed requests: +0\n", text) and "Non-2xx" not in text, text
        assert re.search(r"Complete requests: +%s\n" % more[1], text), text
        check_client(ends, said, 20)
    return said, check_server(ends, server.end(), 2023)


APACHE = """
ServerRoot {folder}
ServerName localhost
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
Listen 127.0.0.1:{port}
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ErrorLog {folder}/error.log
DocumentRoot {folder}/files
EnableSendfile on
{user}
<Directory {folder}/files>
    Require all granted
</Directory>
"""


@pytest.mark.parametrize("mpm", ["event", "worker", "prefork"])
@ENDS
@full
def test_curl_and_ab_on_apache(xsock, row, open_path, ends, mpm):
    port = free_port()
    make_files(open_path)
    (open_path / "apache.conf").write_text(APACHE.format(
        folder=open_path, port=port, mpm=mpm,
        user="User www-data\nGroup www-data" if os.getuid() == 0 else ""))
    with running(xsock, ends[0], open_path, program("apache2"), "-DFOREGROUND", "-f",
                 str(open_path / "apache.conf")) as server:
        await_port(xsock, server, port)
        said, summary = check_web_server(xsock, ends, open_path, server,
                                         "http://127.0.0.1:%d/" % port)
    note(row, ends, "apache2", "curl, ab, ab -k: mpm_" + mpm, said, summary)


def disturb_download(xsock, folder, end, victim, how):
    """curl reads a long file of nginx (`folder`) from `end`: check_chaos() while it does."""
    sent = random.Random(8).randbytes(60_000_000)
    (folder / "files" / "long").write_bytes(sent)
    got = folder / "got"
    with running(xsock, "both", folder, program("curl"), "-sS", "--fail", "--limit-rate", "20M",
                 "http://127.0.0.1:%d/long" % end.port, "-o", str(got)) as client:
        check_chaos(end, client, victim, how, sent, got)


def check_serves(xsock, folder, server):
    """nginx serves other clients, carried."""
    got, said = curl(xsock, "both", "http://127.0.0.1:%d/large" % server.port)
    assert got == (folder / "files" / "large").read_bytes()
    check_client(("both", "both"), said)


@chaos
@full
def test_nginx_and_curl_killed_and_stopped(xsock, tmp_path, victim, how):
    with nginx(xsock, "both", tmp_path) as server:
        disturb_download(xsock, tmp_path, server, victim, how)
        if victim != "server" or goes_on(how):
            check_serves(xsock, tmp_path, server)


@chaos
@full
def test_haproxy_killed_and_stopped(xsock, tmp_path, victim, how):
    """It is the server here: behind it nginx goes on."""
    with nginx(xsock, "both", tmp_path) as server, \
            haproxy(xsock, "both", tmp_path, server.port, "http") as proxy:
        disturb_download(xsock, tmp_path, proxy, victim, how)
        check_serves(xsock, tmp_path, server)
