# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The program `xsock` as its users meet it: every command really run, right and wrong.

    pytest-3 tests/system/tools_test.py --build build/release -k usage
"""
import errno
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree

import pytest

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TIMEOUT = 120  # seconds, for machines that are slow and busy
BUILD = XSOCK = VERSION = SANITIZED = None  # of the build under test: under_test()

COMMANDS = ("run", "info", "doctor", "stat", "perf", "ping")


@pytest.fixture(scope="module", autouse=True)
def under_test(pytestconfig):
    global BUILD, XSOCK, VERSION, SANITIZED
    BUILD = os.path.abspath(pytestconfig.getoption("--build"))
    XSOCK = os.path.join(BUILD, "tools", "xsock")
    VERSION = xsock("--version").stdout.split()[1]
    with open(XSOCK, "rb") as program:
        code = program.read()
    SANITIZED = b"__asan" in code or b"__tsan" in code


def xsock(*arguments, status=0, environment=None, **more):
    """Runs it, wants that exit status, answers with the finished process (text)."""
    surroundings = dict(os.environ, **(environment or {}))
    done = subprocess.run([XSOCK, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                          timeout=TIMEOUT, env=surroundings, check=False, **more)
    assert status is None or done.returncode == status, (
        "xsock", *arguments, "ended with", done.returncode, "and said:\n", done.stdout, done.stderr)
    return done


def xsock_json(*arguments, **more):
    said = xsock(*arguments, **more).stdout
    try:
        return json.loads(said)
    except ValueError as e:
        pytest.fail("%s: no JSON (%s):\n%s" % (arguments, e, said))


class Server:
    """A program in the background that says "listening on port N" first."""

    def __init__(self, *command, environment=None):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, text=True,
                                        env=dict(os.environ, **(environment or {})))
        line = self.process.stdout.readline()
        found = re.match(r"listening on port (\d+)", line)
        if not found:
            self.process.kill()
            pytest.fail("%s does not listen: %s" % (command, line))
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.said = self.process.communicate(timeout=TIMEOUT)[0]

    def stop(self):
        self.__exit__()
        return self.said


def until(condition, *what):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, ("never happened:", *what)
        time.sleep(0.02)


class PlainServer:
    """Takes TCP connections and does `answer(socket)` with each."""

    def __init__(self, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.answer = answer
        self.taken = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection = self.listener.accept()[0]
            self.taken.append(connection)
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()


# ---- the command line ---------------------------------------------------------------------------

def test_usage():
    said = xsock("--help").stdout
    for command in COMMANDS:
        assert re.search(r"^  %s " % command, said, re.M), (command, "is not in --help")
        assert xsock(command, "--help").stdout.startswith("usage: xsock " + command), command
        assert xsock("help", command).stdout.startswith("usage: xsock " + command), command
        wrong = xsock(command, "--nonsense", status=125 if command == "run" else 2)
        assert "there is no option --nonsense" in wrong.stderr, wrong.stderr
        assert wrong.stdout == "", "an error on standard output"
        with open(os.path.join(TOP, "docs", "man", "xsock-%s.1" % command)) as page:
            manual = page.read()
        for side in ((command,), ) if command != "perf" else ((command, "server"),
                                                              (command, "client")):
            options = re.findall(r"^ .*?(--[a-z][a-z0-9-]*)", xsock(*side, "--help").stdout, re.M)
            for option in options:
                assert option == "--help" or re.search(r"Fl.* ?%s\b" % option[1:], manual), (
                    "xsock-%s(1) lacks %s" % (command, option))
    assert re.fullmatch(r"xsock \d+\.\d+\.\d+\n", xsock("--version").stdout), "--version"
    assert "usage" in xsock(status=2).stdout, "no command"
    assert "no command 'nonsense'" in xsock("nonsense", status=2).stderr, "an unknown command"
    assert "no command 'nonsense'" in xsock("help", "nonsense", status=2).stderr, "help for it"
    for arguments, message in (
            (("stat", "--pid"), "wants a value"),
            (("stat", "--pid", "0"), "whole number from 1"),
            (("stat", "--pid=12x"), "whole number"),
            (("stat", "--json=1"), "takes no value"),
            (("stat", "--json=true"), "takes no value"),
            (("ping", "--size=", "127.0.0.1"), "--size wants a value"),
            (("stat", "-Z"), "no option -Z"),
            (("stat", "more"), "too much"),
            (("stat", "-i", "nan"), "a number from"),
            (("info", "more"), "too much"),
            (("info", "--policy"), "--policy PROGRAM ADDRESS:PORT"),
            (("info", "--policy", "p"), "--policy PROGRAM ADDRESS:PORT"),
            (("info", "--policy", "p", "10.0.0.1:1", "more"), "too much"),
            (("info", "--policy", "p", "localhost:1"), "no ADDRESS:PORT"),
            (("info", "--policy", "p", "10.0.0.1"), "no ADDRESS:PORT"),
            (("info", "--policy", "--verbs", "p", "10.0.0.1:1"), "not both"),
            (("doctor", "localhost"), "which port"),
            (("doctor", "a", "1", "b"), "too much"),
            (("doctor", "[::1", "1"), "no host"),
            (("ping",), "which host"),
            (("ping", "-s", "0", "h"), "whole number from 1 to 1048576"),
            (("ping", "-c", "99999999999999999999", "h"), "whole number"),
            (("ping", "--rping", "-s", "8", "h"), "at least 32"),
            (("perf",), "server or client"),
            (("perf", "sideways"), "neither server nor client"),
            (("perf", "client"), "which host"),
            (("perf", "client", "-s", "64,,1K", "h"), "sizes"),
            (("perf", "client", "-s", "17M", "h"), "sizes"),
            (("perf", "client", "-s", "0", "h"), "sizes"),
            (("perf", "client", "-t", "speed", "h"), "latency, bandwidth, rate"),
            (("perf", "client", "-d", "5000", "h"), "from 1 to 1024"),
            (("perf", "server", "1", "2"), "too much")):
        assert message in xsock(*arguments, status=2).stderr, (arguments, "lacks:", message)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([XSOCK, "info"], stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1, "a full disk is no failure"


def test_info():
    info = xsock_json("info", "--json", environment={"XSOCK_THREADS": "3", "XSOCK_CPUS": "1-"})
    assert info["version"]["library"].startswith(info["version"]["program"]), info["version"]
    assert os.path.samefile(info["paths"]["program"], XSOCK), info["paths"]
    assert info["machine"]["crc32c"] in info["machine"]["crc32c_usable"].split(), info["machine"]
    settings = {row["variable"]: row for row in info["settings"]}
    assert settings["XSOCK_THREADS"]["value"] == "3", settings["XSOCK_THREADS"]
    assert settings["XSOCK_THREADS"]["source"] == "environment", settings["XSOCK_THREADS"]
    assert "error" in settings["XSOCK_CPUS"], "a bad value is not told"
    assert settings["XSOCK_CPUS"]["source"] == "built in", settings["XSOCK_CPUS"]
    said = xsock("info", environment={"XSOCK_LOG": "loud"}).stdout
    assert re.search(r"XSOCK_LOG .*loud: none of off", said), said


@pytest.fixture
def policy_file(tmp_path):
    """A folder for XDG_CONFIG_HOME; write(text) puts a policy there."""
    class PolicyFile:
        path = tmp_path / "xsock" / "policy"
        environment = {"XDG_CONFIG_HOME": str(tmp_path), "XSOCK_POLICY": "", "XSOCK_STREAM": ""}

        def write(self, content):
            self.path.parent.mkdir(exist_ok=True)
            if isinstance(content, str):
                content = content.encode()
            self.path.write_bytes(content)

        def info(self, *arguments, status=0, **variables):
            return xsock("info", "--policy", *arguments, status=status,
                         environment=dict(self.environment, **variables))

        def decisions(self, *arguments, status=0, **variables):
            return json.loads(self.info("--json", *arguments, status=status, **variables).stdout)
    return PolicyFile()


def test_policy(policy_file):
    policy_file.write("# rules\n"
                 "use sdp client redis-* 10.0.0.0/8:6379\n"
                 "use tcp listen * [2001:db8::]/32:*\n"
                 "log min-level 7 destination syslog\n")
    said = policy_file.info("/usr/bin/redis-cli", "10.0.0.5:6379").stdout
    assert re.match(r"redis-cli at 10\.0\.0\.5:6379\n"
                    r"  server  both  built in: both for all\n"
                    r"  client  sdp   %s:2: use sdp client redis-\* 10\.0\.0\.0/8:6379\n"
                    % re.escape(str(policy_file.path)), said), said
    assert "%s: taken\n" % policy_file.path in said, said
    assert "policy:4: xsock does not write to syslog" in said, said
    assert "XSOCK_LOG=info\n" in said, said

    found = policy_file.decisions("nginx", "[2001:db8::1]:443", XSOCK_STREAM="sdp")
    assert found["server"] == {"mode": "tcp", "source": "file", "file": str(policy_file.path), "line": 3,
                               "rule": "use tcp server * [2001:db8::]/32:*"}, found
    assert found["client"] == {"mode": "sdp", "source": "environment", "file": None, "line": None,
                               "rule": None}, found
    assert found["error"] is None and found["stream"] == "sdp" and found["log"] == "info", found
    # What the page names as built in is.
    with open(os.path.join(TOP, "docs", "policy.md")) as page:
        known = re.search(r"\n((?:    [a-z0-9* -]+\n)*    sshd [^:]*?)\n\n", page.read()).group(1)
    for program in known.split():
        found = policy_file.decisions(program.replace("*", "4"), "10.0.0.5:22", XSOCK_STREAM="both")
        for role in ("server", "client"):
            assert found[role]["mode"] == "tcp", (program, found)
            assert found[role]["source"] == "known program", (program, found)


def test_policy_errors(policy_file, tmp_path):
    """Each is told with its line, the defaults hold, and nothing waits or crashes."""
    for content, line, reason in (
            ("\nuse sdp client * 10.0.0.256:1\n", 2, "is no address"),
            ("use rsockets client * *:*", 1, "not carried yet"),
            ("use sdp client * *:65536", 1, "is no port"),
            (b"# \0\n", 1, "NUL"),
            (b"\x1b[2Jx\xff\n", 1, "a line begins with"),
            ("x" * 5000, 1, "longer than 4096"),
            ("use tcp server * *:*\n" * 5000, 4097, "more than 4096 rules"),
            ("\n" * 2000000, 0, "longer than 1048576"),
            (os.urandom(65536) + b"\0", None, "")):
        policy_file.write(content)
        done = policy_file.info("p", "10.0.0.1:1", status=1)
        assert "built in: both for all" in done.stdout, done.stdout
        place = "%s:%d: " % (policy_file.path, line) if line else str(policy_file.path)
        assert place in done.stderr and reason in done.stderr, (reason, done.stderr)
        assert not re.search("[\0-\x09\x0b-\x1f]", done.stdout + done.stderr), "control characters"
        error = policy_file.decisions("p", "10.0.0.1:1", status=1)["error"]
        assert error["line"] == line or line is None, error
    policy_file.path.unlink()
    os.mkfifo(policy_file.path)
    assert "is no regular file" in policy_file.info("p", "10.0.0.1:1", status=1).stderr
    # Named, and not there: the other files were not meant.
    named = str(tmp_path / "none")
    done = policy_file.info("p", "10.0.0.1:1", status=1, XSOCK_POLICY=named)
    assert named + ": No such file" in done.stderr, done.stderr
    assert str(policy_file.path) not in done.stdout, done.stdout
    assert "no absolute path" in policy_file.info("p", "10.0.0.1:1", status=1, XSOCK_POLICY="x").stderr
    policy_file.path.unlink()
    assert "XSOCK_STREAM: none of" in policy_file.info("p", "10.0.0.1:1", status=1,
                                                  XSOCK_STREAM="yes").stderr
    # The settings tell of them too.
    rows = {row["variable"]: row for row in xsock_json(
        "info", "--json", environment={"XSOCK_POLICY": named, "XSOCK_STREAM": "yes"})["settings"]}
    assert named + ": No such file" in rows["XSOCK_POLICY"]["error"], rows["XSOCK_POLICY"]
    assert "none of both" in rows["XSOCK_STREAM"]["error"], rows["XSOCK_STREAM"]


def test_policy_setuid(policy_file, tmp_path):
    """Who starts a setuid program sets its environment, and chooses no policy for it."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a program that is setuid to another user")
    policy_file.write("use sdp client * *:*\n")
    program = str(tmp_path / "setuid")
    shutil.copy(XSOCK, program)
    os.chown(program, 65534, 65534)
    os.chmod(program, 0o4755)
    done = subprocess.run([program, "info", "--json", "--policy", "p", "10.0.0.1:1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          timeout=TIMEOUT, env=dict(os.environ, XSOCK_STREAM="tcp", HOME=str(tmp_path),
                                                    XDG_CONFIG_HOME=str(tmp_path)))
    if "shared libraries" in done.stderr:
        pytest.skip("the other user may not read the build tree")
    found = json.loads(done.stdout)
    assert [place["path"] for place in found["places"]] == ["/etc/xsock/policy"], found
    assert found["stream"] is None, found


# ---- run ----------------------------------------------------------------------------------------

def test_run():
    preload = os.path.join(BUILD, "libxsock", "libxsock-preload.so")
    with tempfile.TemporaryDirectory(prefix="xsock-tools.") as work:
        missing = xsock("run", os.path.join(work, "nothing"), status=127)
        assert "No such file" in missing.stderr, missing.stderr
        assert "which program" in xsock("run", status=125).stderr, "no program"
        plain = os.path.join(work, "plain")
        with open(plain, "w") as f:
            f.write("text")
        assert "Permission denied" in xsock("run", plain, status=126).stderr, "not executable"
        assert "Is a directory" in xsock("run", work + "/", status=126).stderr, "a folder"
        static = shutil.which("ldconfig", path="/sbin:/usr/sbin")
        if static:
            assert "statically linked" in xsock("run", static, "-p", status=126).stderr, static
        foreign = os.path.join(work, "foreign")
        with open("/bin/true", "rb") as f:
            image = bytearray(f.read())
        image[18:20] = b"\x16\x00" if image[18] != 0x16 else b"\x3e\x00"  # e_machine
        with open(foreign, "wb") as f:
            f.write(image)
        os.chmod(foreign, 0o755)
        assert "another machine" in xsock("run", foreign, status=126).stderr, "a foreign program"
        script = os.path.join(work, "script")
        with open(script, "w") as f:
            f.write("#!%s\n" % foreign)
        os.chmod(script, 0o755)
        assert "another machine" in xsock("run", script, status=126).stderr, "its script"
        for cut in (0, 3, 17, 63, 64, 100):
            with open(foreign, "wb") as f:
                f.write(image[:cut])
            os.chmod(foreign, 0o755)
            # Whatever it says, it does not crash.
            assert xsock("run", foreign, status=None).returncode >= 0, cut
        if os.geteuid() == 0:
            setuid = os.path.join(work, "setuid")
            shutil.copy("/bin/true", setuid)
            os.chown(setuid, 65534, 65534)
            os.chmod(setuid, 0o4755)
            assert "setuid" in xsock("run", setuid, status=126).stderr, "a setuid program"
        if SANITIZED or not os.path.exists(preload):
            return  # the overlay is no library of its own here
        done = xsock("run", "--log", "debug:%s/log" % work, "--progress=app", "--", "env",
                     environment={"LD_PRELOAD": "/lib/none.so"})
        for line in ("LD_PRELOAD=%s:/lib/none.so" % os.path.realpath(preload),
                     "XSOCK_LOG=debug:%s/log" % work, "XSOCK_PROGRESS=app"):
            assert line in done.stdout.split("\n"), (line, "is not in", done.stdout)
    assert "none of app" in xsock("run", "--progress", "x", "true", status=125).stderr, (
        "a bad value")
    # The options end with the program's name.
    done = xsock("run", "sh", "-c", "exit $1", "sh", "--summary", status=None)
    assert done.returncode != 125 and "xsock:" not in done.stderr, done.stderr
    xsock("run", "sh", "-c", "exit 7", status=7)
    xsock("run", "-s", "sh", "-c", "exit 7", status=7)
    for options in ((), ("-s",)):
        xsock("run", *options, "sh", "-c", "kill -TERM $$; sleep 100", status=-signal.SIGTERM)
    # A signal to xsock run alone reaches the program.
    child = subprocess.Popen([XSOCK, "run", "-s", "sh", "-c",
                              "trap 'echo got; exit 5' USR1; echo up; while :; do sleep 0.05; done"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "up\n", "the shell did not start"
    child.send_signal(signal.SIGUSR1)
    said = child.communicate(timeout=TIMEOUT)
    assert child.returncode == 5 and said[0] == "got\n", (child.returncode, said)
    script = ("import socket as s\n"
              "l=s.create_server(('127.0.0.1',0))\n"
              "c=s.create_connection(l.getsockname())\n"
              "a=l.accept()[0]\n")
    said = xsock("run", "--summary", "/usr/bin/python3", "-c", script).stderr
    assert "3 TCP sockets in 1 process: 1 connected, 1 accepted, 1 listening" in said, said
    assert re.search(r"3 passed through: did not ask for DDPMODE", said), said
    # A server that gives up its rights, calls listen() again and closes what it does not need.
    if os.getuid() == 0:
        script = ("import os, socket as s\n"
                  "l=s.create_server(('127.0.0.1',0))\n"
                  "os.setuid(65534)\n"
                  "l.listen()\n"
                  "if os.fork(): os.wait()\n"
                  "c=s.create_connection(l.getsockname())\n"
                  "a=l.accept()[0]\n")
        said = xsock("run", "--summary", "/usr/bin/python3", "-c", script).stderr
        assert "5 TCP sockets in 2 processes: 2 connected, 2 accepted, 1 listening" in said, said
    # Its descriptor of the file's is not the program's to keep: what takes its number gets no line.
    script = ("import os, resource, socket as s, sys\n"
              "l=s.create_server(('127.0.0.1',0))\n"
              "os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
              "f=os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
              "for n in range(3, 10000):\n"
              "    if n != f: os.dup2(f, n)\n")
    with tempfile.NamedTemporaryFile() as file:
        said = xsock("run", "--summary", "/usr/bin/python3", "-c", script, file.name).stderr
        assert "1 TCP sockets in 1 process: 0 connected, 0 accepted, 1 listening" in said, said
        assert file.read() == b"", "the program's own file"
    # Sockets of a constructor that runs before the overlay's.
    early = os.path.join(BUILD, "tests", "system", "libsystem_early_sockets.so")
    if not SANITIZED:
        said = xsock("run", "--summary", "true", environment={"LD_PRELOAD": early}).stderr
        assert "3 TCP sockets in 1 process: 1 connected, 1 accepted, 1 listening" in said, said


def test_run_stopped():
    """A program that is stopped by its number is continued by it; the terminal stops both. (Its
    signals do nothing in a group that no other one of its session could continue.)"""
    def state(pid):
        with open("/proc/%d/stat" % pid, encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0]

    def wait_for(pid, wanted):
        until = time.monotonic() + TIMEOUT
        while state(pid) != wanted:
            assert time.monotonic() < until, (wanted, state(pid))
            time.sleep(0.01)

    text = "import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen([XSOCK, "run", "--summary", "--", "/usr/bin/python3", "-c", text],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          process_group=0) as runner:
        try:
            program = int(runner.stdout.readline())
            os.kill(program, signal.SIGSTOP)
            wait_for(program, "T")
            time.sleep(0.2)  # what is not to happen would have happened
            assert state(runner.pid) == "S"
            os.kill(program, signal.SIGCONT)
            wait_for(program, "S")
            os.kill(program, signal.SIGTTIN)
            wait_for(runner.pid, "T")
            for pid in (program, runner.pid):
                os.kill(pid, signal.SIGCONT)
            runner.stdin.close()
            assert runner.wait(timeout=TIMEOUT) == 0
        finally:
            if runner.poll() is None:
                os.killpg(runner.pid, signal.SIGKILL)


def test_run_stream(policy_file, tmp_path):
    """The mode and the policy are handed on, after they were checked."""
    def run(*options, status=0, **more):
        environment = dict(policy_file.environment, **more)
        done = xsock("run", *options, "env", status=status, environment=environment, cwd=tmp_path)
        said = dict(line.split("=", 1) for line in done.stdout.split("\n") if "=" in line)
        return said.get("XSOCK_STREAM"), said.get("XSOCK_POLICY"), done.stderr

    named = tmp_path / "named"
    named.write_text("use sdp client * *:*\n")
    if not SANITIZED and os.path.exists(os.path.join(BUILD, "libxsock", "libxsock-preload.so")):
        assert run("--stream") == ("both", "", "")
        for mode in ("both", "sdp", "ddp", "tcp"):
            assert run("--stream=" + mode, "--") == (mode, "", "")
        assert run("--stream", XSOCK_STREAM="tcp")[0] == "both", "an option is above the environment"
        assert run() == ("", "", ""), "without the option"
        assert run("--stream", "--policy", "named") == ("both", str(named), ""), "absolute"
        (tmp_path / "empty").write_text("")
        assert "empty: has no 'use' line" in run("--stream", "--policy", "empty")[2]
    for options, message in ((("--stream=yes",), "none of both, sdp, tcp"),
                             (("--stream=",), "--stream wants a value (both|sdp|tcp)"),
                             (("--policy", str(named)), "--policy goes with --stream"),
                             (("--stream", "--verbs"), "not both"),
                             (("--stream", "--policy", "none"), "none: No such file"),
                             (("--stream", "--policy", "."), "Is a directory")):
        assert message in run(*options, status=125)[2], options
    named.write_text("use\nuse sdp")
    assert "named:1: tcp, both or sdp is missing" in run("--stream", "--policy", "named",
                                                         status=125)[2]


# ---- doctor -------------------------------------------------------------------------------------

def findings(*arguments, status):
    report = xsock_json("doctor", "--json", *arguments, status=status)
    assert report["failed"] == (status != 0), report
    for finding in report["findings"]:
        assert finding["verdict"] in ("OK", "note", "warning", "failure"), finding
        assert finding["text"], ("a finding without a word", finding)
    return report["findings"]


def verdict_of(found, subject):
    return [f["verdict"] + ": " + f["text"] for f in found if f["subject"] == subject]


def test_doctor():
    found = findings(status=0)
    subjects = [f["subject"] for f in found]
    for subject in ("kernel", "descriptors", "crc32c", "engine", "self-test 127.0.0.1", "device lo",
                    "statistics"):
        assert subject in subjects
    text = xsock("doctor").stdout
    assert re.search(r"\d+ OK, \d+ notes?, \d+ warnings?, 0 failures\n$", text), text
    assert "OK  " not in xsock("doctor", "--brief").stdout, "--brief tells what is well"
    found = xsock_json("doctor", "--json", environment={"XSOCK_SPIN_US": "lots"})["findings"]
    assert "warning" in verdict_of(found, "XSOCK_SPIN_US")[0], "a bad setting is well"

    with tempfile.TemporaryDirectory(prefix="xsock-tools.") as work:
        os.chmod(work, 0o777)
        found = xsock_json("doctor", "--json", environment={"XSOCK_STAT": work})["findings"]
        assert "not ours alone" in verdict_of(found, "statistics")[0], "a folder for everybody"


def test_doctor_program():
    found = [f for f in findings(status=0) if f["subject"] == "verbs"]
    assert found, "the verbs API is not checked"
    if "without the verbs API" in found[0]["text"]:
        pytest.skip("built without the verbs API")
    assert [f["verdict"] for f in found] == ["OK", "OK"], found
    if not SANITIZED:
        # A library that was damaged.
        with tempfile.TemporaryDirectory(prefix="xsock-tools.") as work:
            for name in ("libxsock.so.0", "libxsock-engine.so"):
                shutil.copy(os.path.join(BUILD, "libxsock", name), work)
            shutil.copytree(os.path.join(BUILD, "libxsock", "verbs"), work + "/verbs")
            with open(work + "/verbs/libibverbs.so.1", "r+b") as library:
                library.truncate(100)
            found = xsock_json("doctor", "--json", status=1,
                               environment={"LD_LIBRARY_PATH": work})["findings"]
            assert "does not load: " in verdict_of(found, "verbs")[0], found
    # A library of rdma-core's, and a program linked against it and a symbol that no library has.
    compiler = shutil.which("cc")
    with tempfile.TemporaryDirectory(prefix="xsock-tools.") as work:
        def build(source, *arguments):
            with open(work + "/source.c", "w") as file:
                file.write(source)
            subprocess.run([compiler, work + "/source.c", *arguments], check=True)

        if compiler and os.path.exists("/usr/include/infiniband/verbs.h"):
            build("#include <infiniband/verbs.h>\nint main(void) { int n; "
                  "return ibv_get_device_list(&n) == 0; }", "-o", work + "/good", "-libverbs")
            found = findings("--program", work + "/good", status=0)
            assert any("takes" in t and "verbs/libibverbs.so.1" in t
                       for t in verdict_of(found, "program")), found
            build("int nowhere(void) { return 0; }", "-shared", "-fPIC", "-o",
                  work + "/libgoes.so", "-Wl,-soname,libgoes.so")
            build("extern int nowhere(void); int main(void) { return nowhere(); }", "-o",
                  work + "/bad", "-L" + work, "-lgoes", "-Wl,-rpath," + work)
            build("int other(void) { return 0; }", "-shared", "-fPIC", "-o", work + "/libgoes.so",
                  "-Wl,-soname,libgoes.so")
            found = findings("--program", work + "/bad", status=1)
            assert "nowhere" in verdict_of(found, "program")[0], found
            os.unlink(work + "/libgoes.so")
            found = findings("--program", work + "/bad", status=1)
            assert "libgoes.so" in verdict_of(found, "program")[0], found
    found = findings("--roce", "/bin/true", status=0)
    assert verdict_of(found, "device files") and verdict_of(found, "GIDs"), found
    assert any("XSOCK_VERBS_PORTS" in f["mend"] for f in found if f["subject"] == "ports"), found
    for ports, status, word in (("7000-7009", 0, "of the 10"), ("7-", 1, "no range")):
        found = xsock_json("doctor", "--json", "--roce", "/bin/true", status=status,
                           environment={"XSOCK_VERBS_PORTS": ports})["findings"]
        assert word in verdict_of(found, "ports")[0], found
    with socket.create_server(("::", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        found = xsock_json("doctor", "--json", "--roce", "/bin/true", status=1,
                           environment={"XSOCK_VERBS_PORTS": f"{port}-{port}"})["findings"]
        assert "0 of the 1" in verdict_of(found, "ports")[0], found
    found = xsock_json("doctor", "--json", "--roce", "/bin/true", status=1,
                       environment={"XSOCK_VERBS_INTERFACES": "nonesuch"})["findings"]
    assert "nonesuch" in verdict_of(found, "GIDs")[0], found
    assert "one program" in xsock("doctor", "--roce", "/bin/true", "--program", "/bin/true",
                                  status=2).stderr
    found = findings("--program", "/bin/true", status=0)
    assert any("neither libibverbs" in t for t in verdict_of(found, "program")), found
    found = findings("--program", "/no/such/program", status=1)
    assert "No such file" in verdict_of(found, "program")[0], found


def test_doctor_overlaid(tmp_path):
    """A program for the overlay, by its file."""
    compiler = shutil.which("cc")
    environment = {"PATH": "%s:%s" % (tmp_path, os.environ["PATH"])}

    def of(program, status):
        report = xsock_json("doctor", "--json", program, status=status, environment=environment)
        found = ["%(verdict)s %(subject)s: %(text)s" % f for f in report["findings"]]
        assert found and report["failed"] == (status != 0), (program, found)
        return found

    def build(name, source, *arguments):
        (tmp_path / "source.c").write_text(source)
        subprocess.run([compiler, "-o", tmp_path / name, tmp_path / "source.c", *arguments],
                       check=True, timeout=TIMEOUT)
        return str(tmp_path / name)

    def script(name, first_line):
        path = tmp_path / name
        path.write_text(first_line + "\n")
        path.chmod(0o755)
        return str(path)

    simple = "int main(void) { return 1; }\n"
    dynamic = build("dynamic", simple)
    for name in (dynamic, "dynamic", "/bin/sh"):
        found = of(name, 0)
        assert re.match("OK program: .*linked dynamically", found[0]), found
        assert found[1].startswith("note own system calls: cannot be seen"), found
    assert "which port of" in xsock("doctor", "no-such-program", status=2).stderr
    assert "No such file" in of(str(tmp_path / "none"), 1)[0]
    assert "Is a directory" in of(str(tmp_path), 1)[0]
    for option in ("-static", "-static-pie"):
        found = of(build("static", simple, option), 1)
        assert len(found) == 1 and "is statically linked" in found[0], found

    # What Go's linker leaves: a note, and names of sections.
    note = ('__asm__(".section .note.go.buildid,\\"a\\",%note\\n'
            '.long 4, 4, 4\\n.asciz \\"Go\\"\\n.byte 0\\n.ascii \\"name\\"");\n')
    go = build("go", simple + note)
    assert "failure program: %s has the Go runtime" % go in of(go, 1)[0]
    with open(go, "r+b") as file:  # stripped of its sections
        for offset, size in ((40, 8), (60, 4)) if struct.calcsize("P") == 8 else ((32, 4), (48, 4)):
            file.seek(offset)
            file.write(bytes(size))
    assert "has the Go runtime" in of(go, 1)[0], "by its note"
    cgo = build("cgo", simple + '__attribute__((section(".gopclntab"))) int table = 1;\n')
    assert "has the Go runtime" in of(cgo, 1)[0], "by its sections"
    found = of(build("static-go", simple + note, "-static"), 1)
    assert "is statically linked" in found[0] and "has the Go runtime" in found[1], found
    # An owner's name that reaches behind the notes, and one that only begins so.
    for sizes, owner in (("2000000000, 4, 4", "Go"), ("4, 2000000000, 4", "Ho"), ("4, 4, 4", "Gob")):
        odd = note.replace("4, 4, 4", sizes).replace("Go\\\"", owner + "\\\"").replace(
            ".note.go.buildid", ".note.other")
        assert of(build("odd", simple + odd), 0)[0].startswith("OK"), (sizes, owner)

    # Other C libraries, dynamic linkers that are not there.
    musl = build("musl", simple, "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    assert "another C library (musl)" in of(musl, 1)[0]
    lost = build("lost", simple, "-Wl,--dynamic-linker=/nowhere/ld.so")
    assert "wants the dynamic linker /nowhere/ld.so" in of(lost, 1)[0]

    # What may make system calls without libc.
    build("liburing.so.2", "int io_uring_submit(void *r) { return r != 0; }\n", "-shared", "-fPIC",
          "-Wl,-soname,liburing.so.2")
    found = of(build("uring", "int io_uring_submit(void *);\n"
                     "int main(void) { return io_uring_submit(0); }\n",
                     str(tmp_path / "liburing.so.2"), "-Wl,-rpath," + str(tmp_path)), 0)
    assert found[0].startswith("OK") and "is linked against liburing.so.2" in found[1], found
    # (the text lies across the end of what is read at once)
    text = "/cargo/registry/src/rustix-0.38.1/src/backend/linux_raw/conv.rs"
    rust = build("rust", '#include <stdio.h>\nint main(void) { return puts("%s"); }\n' % text)
    with open(rust, "rb") as file:
        image = file.read()
    assert "the crate rustix" in of(rust, 0)[1]
    marker = b"/backend/linux_raw/"
    for at in range(len(marker) + 1):
        shifted = image.replace(marker, b"/nothing/of/the/kind"[:len(marker)])
        shifted += bytes((1 << 20) - len(shifted) - at) + marker
        (tmp_path / "rust").write_bytes(shifted)
        assert "the crate rustix" in of(rust, 0)[1], at

    # Scripts.
    found = of(script("script", "#!" + dynamic), 0)
    assert "is a script of %s" % dynamic in found[0] and found[1].startswith("OK"), found
    for first_line in ("#!/usr/bin/env static", "#! /usr/bin/env -S A=1 static -x",
                       "#!%s" % (tmp_path / "static")):
        found = of(script("script", first_line), 1)
        assert "statically linked" in found[-1], (first_line, found)
    script("inner", "#!%s" % (tmp_path / "static"))
    found = of(script("script", "#!%s" % (tmp_path / "inner")), 1)
    assert "statically linked" in found[-1], "a script of a script: %s" % found
    for first_line in ("#!/usr/bin/env -S -i dynamic", "#!/usr/bin/env -S LD_PRELOAD= dynamic"):
        found = of(script("script", first_line), 1)
        assert "without LD_PRELOAD" in found[-1], found
    assert "wants nothing-there: No such file" in of(script("script", "#!/usr/bin/env nothing-there"),
                                                     1)[-1]
    assert "/usr/bin/env is linked dynamically" in of(
        script("script", "#!/usr/bin/env -u A static"), 0)[-2], "options that are not known"
    endless = script("endless", "#!%s" % (tmp_path / "endless"))
    assert "without an end" in of(endless, 1)[-1]
    for content in ("text", "", "#!"):
        assert "neither an ELF program nor a script" in of(script("none", content), 1)[0], content

    # Files that are damaged: whatever is said, nothing crashes.
    with open(dynamic, "rb") as file:
        image = file.read()
    foreign = bytearray(image)
    foreign[18:20] = b"\x16\x00" if foreign[18] != 0x16 else b"\x3e\x00"  # e_machine
    damaged = tmp_path / "damaged"
    damaged.write_bytes(foreign)
    damaged.chmod(0o755)
    assert "another machine" in of(str(damaged), 1)[0]
    dice = random.Random(1)
    for case in range(60):
        wrong = bytearray(image[:dice.choice((len(image), dice.randrange(2000)))])
        for _ in range(dice.randrange(1, 30)):
            if wrong:
                wrong[dice.randrange(min(len(wrong), 1200))] = dice.choice((0, 1, 127, 255))
        damaged.write_bytes(wrong)
        done = xsock("doctor", str(damaged), status=None)
        assert done.returncode in (0, 1), (case, done)
    if os.geteuid() == 0:
        os.chown(dynamic, 65534, 65534)
        os.chmod(dynamic, 0o4755)
        assert "is setuid" in of(dynamic, 1)[0]
        found = of(script("script", "#!" + dynamic), 1)
        assert "%s is setuid" % dynamic in found[-1], "a script of it: %s" % found
        os.chmod(dynamic, 0o2755)
        assert "is setgid" in of(dynamic, 1)[0]
        os.chmod(dynamic, 0o2645)
        assert of(dynamic, 0)[0].startswith("OK"), "the bit without the right to execute"
        # The kernel gives a script itself no rights.
        os.chmod(dynamic, 0o755)
        given = script("script", "#!" + dynamic)
        os.chown(given, 65534, 65534)
        os.chmod(given, 0o4755)
        assert "is a script of" in of(given, 0)[0]


def test_doctor_capabilities():
    """A program with file capabilities, for root and for a user."""
    if os.geteuid() != 0:
        pytest.skip("only root gives capabilities")
    with tempfile.TemporaryDirectory(prefix="xsock-tools.") as work:
        os.chmod(work, 0o755)
        program = os.path.join(work, "program")
        shutil.copy("/bin/true", program)
        # VFS_CAP_REVISION_2, effective; permitted: CAP_NET_BIND_SERVICE
        os.setxattr(program, "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
        script = os.path.join(work, "script")
        with open(script, "w", encoding="ascii") as file:
            file.write("#!%s\n" % program)
        os.chmod(script, 0o755)
        assert "linked dynamically" in xsock("doctor", program).stdout, "root has them anyhow"

        def as_user(path, status, *more):
            done = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *more, XSOCK,
                 "doctor", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=TIMEOUT, check=False)
            if done.returncode in (126, 127):
                pytest.skip("another user cannot start xsock here")
            assert done.returncode == status, done.stdout
            return done.stdout

        for path in (program, script):
            said = as_user(path, 1)
            assert "%s has file capabilities" % program in said, said
            assert "a copy of it without" in said, said
        assert "linked dynamically" in as_user(program, 0, "--no-new-privs"), "they are not given"


def test_doctor_peers():
    # No listener there.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        found = findings("127.0.0.1", nobody.getsockname()[1], status=1)
        assert "refused" in verdict_of(found, "TCP")[0], found
    found = findings("no-such-host.invalid", 1, status=1)
    assert verdict_of(found, "name"), found

    # Silent, and hanging up.
    silent = PlainServer(lambda c: time.sleep(TIMEOUT))
    found = findings("127.0.0.1", silent.port, "-W", "0.3", status=1)
    assert "says nothing" in verdict_of(found, "MPA")[0], found
    closes = PlainServer(lambda c: c.close())
    found = findings("127.0.0.1", closes.port, status=1)
    assert re.search("closed|reset", verdict_of(found, "MPA")[0]), found

    # Other protocols: those that speak first, and one that wants a line.
    def says(data):
        return PlainServer(lambda c: (c.sendall(data), c.recv(1)))

    for data, name in ((b"SSH-2.0-OpenSSH\r\n", "SSH"), (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
                         (b"220 mail\r\n", "SMTP"), (b"-ERR unknown\r\n", "redis"),
                         (b"MPA ID Req Frame\x40\x02\0\0", "MPA, but it asks")):
        found = findings("127.0.0.1", says(data).port, status=1)
        assert name in verdict_of(found, "MPA")[0], (name, "was not recognised:", found)

    def web(connection):
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(100)
        connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    found = findings("127.0.0.1", PlainServer(web).port, "-W", "0.5", status=1)
    assert "HTTP" in verdict_of(found, "MPA")[0], found

    # Those that do speak MPA.
    def reply(flags, revision, private=b"", only=None):
        def answer(connection):
            request = b""
            while len(request) < 20:
                request += connection.recv(1024)
            if only is not None and request[17] != only:
                connection.close()
                return
            connection.sendall(b"MPA ID Rep Frame" + bytes((flags, revision)) +
                               struct.pack(">H", len(private)) + private)
            connection.recv(1)
        return PlainServer(answer)

    found = findings("127.0.0.1", reply(0x40, 1).port, status=0)
    assert "revision 1" in " ".join(verdict_of(found, "MPA")), found
    assert "not an xsock" in " ".join(verdict_of(found, "MPA")), found
    found = findings("127.0.0.1", reply(0x40, 1, only=1).port, status=0)
    assert "hangs up at revision 2" in " ".join(verdict_of(found, "MPA")), found
    found = findings("127.0.0.1", reply(0x60, 2, b"go away").port, status=0)
    assert "said no: go away" in " ".join(verdict_of(found, "MPA")), found
    found = findings("127.0.0.1", reply(0xd0, 2, struct.pack(">HH", 3, 5)).port, status=0)
    assert "markers wanted" in " ".join(verdict_of(found, "MPA")), found
    assert "serves 3 of ours and sends 5" in " ".join(verdict_of(found, "MPA")), found

    with Server(os.path.join(BUILD, "examples", "echo"), "server", "0") as echo:
        found = findings("localhost", echo.port, status=0)
        assert "revision 2, CRC on, markers not wanted, an xsock" in verdict_of(found, "MPA")[0], (
            found)


# ---- stat ---------------------------------------------------------------------------------------

class Folder:
    """A folder of our own for pages."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="xsock-stat.")
        self.environment = {"XSOCK_STAT": self.path, "XSOCK_SHM": "off"}
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def stat(self, *arguments):
        return xsock_json("stat", "--json", *arguments, environment=self.environment)["processes"]


def test_stat():
    with Folder() as folder:
        assert folder.stat() == [], "connections out of nothing"
        assert "No DDP connections" in xsock("stat", environment=folder.environment).stdout, "text"
        with Server(XSOCK, "ping", "--listen", "127.0.0.1:0",
                    environment=folder.environment) as server:
            def client(*arguments, count=7):
                return subprocess.Popen(
                    [XSOCK, "ping", "127.0.0.1", str(server.port), "-s", "1000", "-i", "0",
                     "-c", str(count), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=dict(os.environ, **folder.environment), text=True)

            # Held up behind its first round by a long pause, so that its page can be read.
            pinger = subprocess.Popen(
                [XSOCK, "ping", "127.0.0.1", str(server.port), "-s", "1000", "-i", "3600"],
                stdout=subprocess.PIPE, env=dict(os.environ, **folder.environment), text=True)
            assert ", xsock %s, by TCP (shared memory: off)\n" % VERSION in (
                pinger.stdout.readline()), "PING"
            pinger.stdout.readline()  # the first round
            processes = {p["pid"]: p for p in folder.stat()}
            assert set(processes) == {pinger.pid, server.process.pid}, processes
            near = processes[pinger.pid]["connections"][0]
            far = processes[server.process.pid]["connections"][0]
            for end in (near, far):
                assert end["state"] == "established" and end["mode"] == "endpoint", end
                assert end["negotiated"]["crc"] and end["negotiated"]["revision"] == 2, end
                assert end["negotiated"]["peer_is_xsock"] and end["error"] == 0, end
                assert end["negotiated"]["peer_name"] == "xsock", end
                assert end["negotiated"]["peer_version"] == VERSION, end
            assert near["negotiated"]["initiator"] and not far["negotiated"]["initiator"], near
            assert near["peer"] == far["local"] == "127.0.0.1:%d" % server.port, (near, far)
            assert near["local"] == far["peer"], (near, far)
            for ours, theirs in ((near, far), (far, near)):
                assert ours["sent"]["sends"] == theirs["received"]["sends"] == 1, (ours, theirs)
                assert ours["sent_bytes"] == theirs["received_bytes"], (ours, theirs)
            assert near["sent"]["reads"] == far["received"]["reads"] == 1, (near, far)
            assert far["sent"]["read_responses"] == near["received"]["read_responses"] == 1, far
            assert near["sent_payload"] == 1000 and near["received_payload"] == 2000, near
            assert [p["pid"] for p in folder.stat("--pid", pinger.pid)] == [pinger.pid], "--pid"
            line = xsock("stat", environment=folder.environment).stdout
            assert re.search(r"%d +xsock +endpoint +established +%s +tcp " % (
                pinger.pid, re.escape(near["peer"])), line), line
            long = xsock("stat", "-l", environment=folder.environment).stdout
            assert "Read Requests" in long and "MPA" not in long, long
            assert long.count("data go by tcp; shared memory: off") == 2, long
            # 0x10 where the kernel can limit the delay of ACKs.
            assert re.search(r"the peer is xsock %s, features 0x[23]3\b" % re.escape(VERSION), long), (
                long)
            watched = xsock("stat", "-i", "0.1", "-n", "3", environment=folder.environment).stdout
            assert watched.count("OPTIONS") == 3 and "/s" in watched, watched
            documents = xsock("stat", "-j", "-i", "0.05", "-n", "2", environment=folder.environment)
            assert documents.stdout.count('"processes"') == 2, documents.stdout

            # Killed: gone at once, and its file with the next report.
            pinger.kill()
            pinger.wait()
            assert all(p["pid"] != pinger.pid for p in folder.stat()), "a dead process is shown"
            assert not [n for n in os.listdir(folder.path) if n.startswith("%d-" % pinger.pid)], (
                "a dead process's file stays")
            # One that ends well leaves nothing behind at all.
            polite = client()
            polite.communicate(timeout=TIMEOUT)
            assert polite.returncode == 0, "ping failed"
            assert not [n for n in os.listdir(folder.path) if n.startswith("%d-" % polite.pid)], (
                "a process that ended well left its file")
        assert os.listdir(folder.path) == [], os.listdir(folder.path)

    # Off, and not for others' eyes.
    with Folder() as folder:
        with Server(XSOCK, "ping", "--listen", "0", environment={"XSOCK_STAT": "off"}):
            assert folder.stat() == [], "XSOCK_STAT=off is shown"
        mode = stat.S_IMODE(os.stat(folder.path).st_mode)
        os.chmod(folder.path, 0o755)
        refused = xsock("stat", environment=folder.environment)
        assert "others may write" in refused.stderr, refused.stderr
        os.chmod(folder.path, mode)
        with Server(XSOCK, "ping", "--listen", "0", environment=folder.environment) as server:
            xsock("ping", "127.0.0.1", server.port, "-c", "1", environment={"XSOCK_STAT": "off"})
            pages = os.listdir(folder.path)
            assert len(pages) == 1, pages
            assert stat.S_IMODE(os.stat(os.path.join(folder.path, pages[0])).st_mode) == 0o600, (
                "others may read a page")


def test_kernel_module():
    """XSOCK_KERNEL: stat says why the module does not place; what it may not be is refused."""
    if os.path.exists("/dev/ddp"):
        pytest.skip("what is there to be used is another test's")
    info = xsock_json("info", "--json")["kernel_module"]
    assert info["device"] == "/dev/ddp" and "not loaded" in info["state"], info
    for mode, status, verdict in (("off", 0, "OK"), ("auto", 0, "note"), ("require", 1, "failure")):
        found = [f for f in xsock_json("doctor", "--json", status=status, environment={
            "XSOCK_KERNEL": mode})["findings"] if f["subject"] == "kernel module"]
        assert [f["verdict"] for f in found] == [verdict], (mode, found)
    with Folder() as folder, Server(XSOCK, "ping", "--listen", "127.0.0.1:0",
                                    environment=folder.environment) as server:
        with subprocess.Popen([XSOCK, "ping", "127.0.0.1", str(server.port), "-i", "3600"],
                              stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, **folder.environment,
                                       XSOCK_KERNEL="auto")) as pinger:
            pinger.stdout.readline()
            told = {p["pid"]: p["connections"][0] for p in folder.stat()}
            (near,) = [c for pid, c in told.items() if pid == pinger.pid]
            (far,) = [c for pid, c in told.items() if pid != pinger.pid]
            assert (near["stack"], near["kernel_reason"]) == ("user", "kernel-absent"), near
            assert (far["stack"], far["kernel_reason"]) == ("user", ""), far
            pinger.terminate()
        required = xsock("ping", "127.0.0.1", server.port, "-c", "1", status=1,
                         environment={"XSOCK_KERNEL": "require", "XSOCK_LOG": "warn"})
        assert "kernel-absent" in required.stderr, required.stderr
        assert os.strerror(errno.ENOENT) in required.stderr, required.stderr


def test_shm_path():
    """XSOCK_SHM: ping and stat say which way data go, and why; what it may not be is refused."""
    on, off = {"XSOCK_SHM": "auto"}, {"XSOCK_SHM": "off"}
    with Folder() as folder, Server(XSOCK, "ping", "--listen", "127.0.0.1:0",
                                    environment=dict(folder.environment, **off)) as server:
        for surroundings, why in ((on, "peer-off"), (off, "off"),
                                  (dict(on, XSOCK_EXTENSIONS="0"), "extensions-off")):
            said = xsock_json("ping", "127.0.0.1", server.port, "-c", "1", "--json",
                              environment=surroundings)
            assert (said["path"], said["shm_reason"]) == ("tcp", why), said
        with subprocess.Popen([XSOCK, "ping", "127.0.0.1", str(server.port), "-i", "3600"],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, **folder.environment, **on}) as pinger:
            assert "by TCP (shared memory: peer-off)" in pinger.stdout.readline()
            (near,) = [p for p in folder.stat() if p["pid"] == pinger.pid]
            assert near["connections"][0]["path"] == "tcp", near
            assert near["connections"][0]["shm_reason"] == "peer-off", near
            pinger.terminate()
        required = xsock("ping", "127.0.0.1", server.port, "-c", "1", status=1,
                         environment={"XSOCK_SHM": "require"})
        assert os.strerror(errno.EPROTONOSUPPORT) in required.stderr, required.stderr
        both = xsock("ping", "127.0.0.1", server.port, "-c", "1", status=1,
                     environment={"XSOCK_SHM": "require", "XSOCK_EXTENSIONS": "0",
                                  "XSOCK_LOG": "error"})
        assert "shared memory is required, and extension frames are off" in both.stderr, both.stderr
    for option, wrong, why in (("--shm", "on", "none of off"), ("--shm-memory", "1K", "not a size"),
                               ("--shm-users", "65534", "not a list")):
        assert why in xsock("run", option, wrong, "true", status=125).stderr, option
    # A machine under load may let either end of the link wait.
    require = dict(folder.environment, XSOCK_SHM="require", XSOCK_SHM_TIMEOUT_MS="30000")
    with Server(XSOCK, "ping", "--listen", "127.0.0.1:0", environment=require) as server:
        said = xsock_json("ping", "127.0.0.1", server.port, "-c", "1", "--json",
                          environment=require)
        assert (said["path"], said["lost"]) == ("shm", 0), said
    (verdict,) = verdict_of(findings(status=0), "shared memory")
    assert verdict.startswith("OK"), verdict


def test_congestion():
    """XSOCK_CONGESTION: shown by stat, unknown ones named in the log, and by doctor."""
    with Folder() as folder:
        for name, shown in (("reno", r"^reno$"), ("nonesuch", r"^(?!nonesuch)\w+$")):
            surroundings = dict(folder.environment, XSOCK_CONGESTION=name, XSOCK_LOG="error")
            with Server(XSOCK, "ping", "--listen", "127.0.0.1:0",
                        environment=surroundings) as server:
                pinger = subprocess.Popen(
                    [XSOCK, "ping", "127.0.0.1", str(server.port), "-i", "3600"],
                    stdout=subprocess.PIPE, text=True,
                    env=dict(os.environ, **folder.environment))
                pinger.stdout.readline()
                pinger.stdout.readline()  # the first round
                (served,) = [p for p in folder.stat() if p["pid"] == server.process.pid]
                assert re.match(shown, served["connections"][0]["congestion"]), served
                said = xsock("stat", "-l", environment=folder.environment).stdout
                assert "TCP under " in said, said
                pinger.terminate()
                pinger.communicate()
            lines = re.findall(r"bad-setting: XSOCK_CONGESTION=.*", server.said)
            assert len(lines) == (name == "nonesuch"), (name, server.said)
    found = xsock_json("doctor", "--json", environment={"XSOCK_CONGESTION": "nonesuch"})["findings"]
    assert any(said.startswith("warning: XSOCK_CONGESTION: the kernel has no nonesuch")
               for said in verdict_of(found, "congestion control")), found
    done = xsock("run", "--congestion", "a-name-too-long-", "true", status=125)
    assert "not a name" in done.stderr, done.stderr


def test_doctor_pacing():
    """What a congestion control that paces costs inside the machine."""
    control = "/proc/sys/net/ipv4/tcp_congestion_control"
    if "XSOCK_OWN_NETWORK" not in os.environ:
        pytest.skip("no network of its own, whose settings it may change")
    with open(control) as now:
        usual = now.read().strip()
    try:
        for wanted in ("reno", "bbr"):
            with open(control, "w") as change:  # of this network namespace
                change.write(wanted)
            (said,) = [f for f in findings(status=0) if f["subject"] == "congestion control"]
            if wanted == "reno":
                assert (said["verdict"], said["text"]) == ("OK", "reno"), said
                continue
            assert said["verdict"] == "note", said
            rates = re.fullmatch(r"bbr paces what it sends, also inside the machine: one TCP "
                                 r"connection over loopback moves (\S+ \S+)/s, with (\w+) "
                                 r"(\S+ \S+)/s", said["text"])
            assert rates and "XSOCK_CONGESTION=" + rates.group(2) in said["mend"], said
    except OSError as error:
        pytest.skip("the congestion control cannot be chosen: %s" % error)
    finally:
        with open(control, "w") as change:
            change.write(usual)


def test_stat_modes():
    """Sockets in DDPMODE of an unmodified program, and what run's summary says of them."""
    preload = os.path.join(BUILD, "libxsock", "libxsock-preload.so")
    if SANITIZED or not os.path.exists(preload):
        pytest.skip("the overlay is no library of its own here")
    program = """
import socket as s, sys, threading
L, DDPMODE = 0x5853, 1
l = s.socket(); l.setsockopt(L, DDPMODE, 1); l.bind(('127.0.0.1', 0)); l.listen()
c = s.socket(); c.setsockopt(L, DDPMODE, 1); c.settimeout(60)
def client():
    c.connect(l.getsockname())
    for i in range(3): c.send(b'x' * 100)
thread = threading.Thread(target=client); thread.start()
a = l.accept()[0]; a.settimeout(60)
for i in range(3): assert a.recv(1000) == b'x' * 100
thread.join()
print('up', flush=True); sys.stdin.readline()
"""
    with Folder() as folder:
        child = subprocess.Popen([XSOCK, "run", "--summary", "/usr/bin/python3", "-c", program],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True,
                                 env=dict(os.environ, **folder.environment))
        line = child.stdout.readline()
        if line != "up\n":
            pytest.fail("the program failed: %s" % child.communicate()[1])
        connections = [c for p in folder.stat() for c in p["connections"]]
        assert sorted(c["mode"] for c in connections) == ["message", "message"], connections
        assert sorted(c["sent"]["sends"] for c in connections) == [0, 3], connections
        said = child.communicate("\n", timeout=TIMEOUT)[1]
        assert child.returncode == 0, said
        assert "carried over iWARP (message mode)" in said, said
        assert folder.stat() == [], "something is left"


def test_stat_exec():
    """A process that calls exec is another program: its connections are gone."""
    with Folder() as folder:
        with Server(XSOCK, "ping", "--listen", "0", environment=folder.environment) as server:
            xsock("ping", "127.0.0.1", server.port, "-c", "1", environment={"XSOCK_STAT": "off"})
            page = os.listdir(folder.path)[0]
            # The same file under the name of a process that lives and has it not mapped.
            outsider = subprocess.Popen(["sleep", str(TIMEOUT)])
            name = re.sub(r"^\d+", str(outsider.pid), page)
            shutil.copy(os.path.join(folder.path, page), os.path.join(folder.path, name))
            assert [p["pid"] for p in folder.stat()] == [server.process.pid], (
                "a process without a page is shown")
            assert name not in os.listdir(folder.path), "the client's file stays"
            outsider.kill()
            outsider.wait()


def test_stat_fuzz():
    """Pages with anything in them: errors or nonsense, but an orderly end and good JSON."""
    seed = int(os.environ.get("XSOCK_SEED", random.randrange(1 << 30)))
    print("XSOCK_SEED=%d" % seed)
    dice = random.Random(seed)
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as listener, \
            socket.create_connection(listener.getsockname()) as open_socket:
        with Server(XSOCK, "ping", "--listen", "0", environment=folder.environment) as server:
            pinger = subprocess.Popen(
                [XSOCK, "ping", "127.0.0.1", str(server.port), "-i", "3600"],
                stdout=subprocess.PIPE, env=dict(os.environ, XSOCK_STAT="off"), text=True)
            pinger.stdout.readline()
            pinger.stdout.readline()
            page = os.listdir(folder.path)[0]
            with open(os.path.join(folder.path, page), "rb") as f:
                good = f.read()
            pinger.kill()
            pinger.wait()
        slots_at, slot_size, slots = struct.unpack_from("<III", good, 12)
        plain_at, plain_records = struct.unpack_from("<II", good, 200)
        used = [*range(216), *range(plain_at, plain_at + 16 * plain_records),
                *range(slots_at, slots_at + slot_size * slots)]
        assert plain_records > 0 and len(used) < len(good) == slots_at + slot_size * slots
        # We have the file mapped, as its process would.
        path = os.path.join(folder.path, re.sub(r"^\d+", str(os.getpid()), page))
        for turn in range(40 if SANITIZED else 200):
            data = bytearray(good)
            kind = dice.randrange(7)
            if kind == 0:
                data = bytearray(dice.randbytes(dice.randrange(1, 20000)))
            elif kind == 1:
                data[:216] = good[:8] + dice.randbytes(208)
            elif kind == 2:  # sizes and counts
                struct.pack_into("<I", data, dice.choice((8, 12, 16, 20, 200, 204)),
                                 dice.choice((0, 1, 7, 8, 215, 216, 896, 4096, 1 << 31, 0xffffffff)))
            elif kind == 3:  # slots that are all taken, full of noise, never finished
                for at in range(slots_at, len(data), slot_size):
                    data[at:at + slot_size] = dice.randbytes(slot_size)
                    struct.pack_into("<II", data, at, dice.getrandbits(32), 1)
            elif kind == 6:  # records of sockets, some of them of one that is there
                for at in range(plain_at, plain_at + 16 * plain_records, 16):
                    data[at:at + 16] = dice.randbytes(16)
                    if dice.randrange(2):
                        struct.pack_into("<Q", data, at, os.fstat(open_socket.fileno()).st_ino)
            elif kind == 4:
                data = data[:dice.randrange(1, len(data))]
            else:
                for _ in range(dice.randrange(1, 200)):
                    data[dice.choice(used)] = dice.getrandbits(8)
            with open(path, "wb") as f:
                f.write(data)
            with open(path, "r+b") as f:
                mapped = mmap.mmap(f.fileno(), len(data))
                how = dice.choice((("-j",), (), ("-l",)))
                done = xsock("stat", *how, *dice.choice((("--all",), ())), status=0,
                             environment=folder.environment)
                mapped.close()
            if "-j" in how:
                json.loads(done.stdout)
            assert "\x1b" not in done.stdout and "\0" not in done.stdout, (
                "control characters", turn)
        # Cut short again and again while it is read.
        with open(path, "wb") as f:
            f.write(good)
        with open(path, "r+b") as f:
            mapped = mmap.mmap(f.fileno(), len(good))
            over = threading.Event()

            def breathe():
                while not over.is_set():
                    os.truncate(path, 100)
                    os.truncate(path, len(good))

            thread = threading.Thread(target=breathe)
            thread.start()
            try:
                for _ in range(30):
                    json.loads(xsock("stat", "-j", status=0,
                                     environment=folder.environment).stdout)
            finally:
                over.set()
                thread.join()
            mapped.close()


def test_stat_churn():
    """Looks again and again while hundreds of connections open and close."""
    churn = os.path.join(BUILD, "tests", "system", "system_churn")
    with Folder() as folder:
        crowd = subprocess.Popen([churn, *(("300", "100") if SANITIZED else ("2000", "200"))],
                                 stdout=subprocess.DEVNULL,
                                 env=dict(os.environ, **folder.environment))
        reports = most = 0
        while crowd.poll() is None:
            for process in folder.stat():
                most = max(most, len(process["connections"]))
                assert process["unlisted"] == 0, (process["unlisted"], "found no slot")
                for c in process["connections"]:
                    assert c["state"] != "?" and c["mode"] == "endpoint", c
                    assert re.fullmatch(r"127\.0\.0\.\d+:\d+|\[.*\]:\d+|\?|", c["peer"]), c
                    assert c["state"] != "established" or c["negotiated"]["revision"] == 2, c
            reports += 1
        assert crowd.returncode == 0, ("the crowd failed:", crowd.returncode)
        # A hundred are open at once in either crowd's second half; how many one report shows is a
        # matter of the machine's speed.
        assert reports > 2 and most > (10 if SANITIZED else 50), (
            reports, "reports, at most", most, "connections")
        print("%d reports, at most %d connections at once" % (reports, most))
        assert folder.stat() == [], "something is left"


# ---- ping ---------------------------------------------------------------------------------------

def test_ping():
    for host in ("127.0.0.1", "::1"):
        if host == "::1" and not os.path.exists("/proc/sys/net/ipv6"):
            continue
        where = "[%s]:0" % host if ":" in host else host + ":0"
        with Server(XSOCK, "ping", "--listen", where) as server:
            done = xsock("ping", host, server.port, "-c", "3", "-i", "0.01")
            assert len(re.findall(r"seq=\d send=\S+ [num]?s read=\S+ [num]?s", done.stdout)) == 3, (
                done.stdout)
            assert "3 round trips, 0 lost" in done.stdout, done.stdout
            assert re.search(r"read min/avg/max/mdev = [\d./]+ us", done.stdout), done.stdout
            for size in (1, 4096, 1048576):
                report = xsock_json("ping", host, server.port, "-c", 20, "-i", 0, "-s", size, "-j")
                for kind in ("send", "read"):
                    r = report[kind]
                    assert r["count"] == 20 and 0 < r["min_us"] <= r["avg_us"] <= r["max_us"], r
            report = xsock_json("ping", host, server.port, "-c", 5, "-i", 0, "--json", "--read")
            assert "send" not in report and report["read"]["count"] == 5, report
            # Interrupted: the summary comes, and all is well.
            patient = subprocess.Popen([XSOCK, "ping", host, str(server.port), "-i", "0.05"],
                                       stdout=subprocess.PIPE, text=True)
            patient.stdout.readline()
            patient.stdout.readline()
            patient.send_signal(signal.SIGINT)
            said = patient.communicate(timeout=TIMEOUT)[0]
            assert patient.returncode == 0 and "0 lost" in said, (patient.returncode, said)
            # Several at once.
            many = [subprocess.Popen([XSOCK, "ping", host, str(server.port), "-c", "50", "-i", "0",
                                      "-q"], stdout=subprocess.DEVNULL) for _ in range(8)]
            assert all(p.wait(TIMEOUT) == 0 for p in many), "eight at once"
            # One that dies in the midst harms no other.
            patient = subprocess.Popen([XSOCK, "ping", host, str(server.port), "-i", "0.05"],
                                       stdout=subprocess.PIPE, text=True)
            patient.stdout.readline()
            victim = subprocess.Popen([XSOCK, "ping", host, str(server.port), "-i", "0", "-s",
                                       "100000"], stdout=subprocess.DEVNULL)
            time.sleep(0.2)
            victim.kill()
            victim.wait()
            for _ in range(4):
                patient.stdout.readline()
            patient.send_signal(signal.SIGINT)
            said = patient.communicate(timeout=TIMEOUT)[0]
            assert patient.returncode == 0 and "0 lost" in said, (patient.returncode, said)
            xsock("ping", host, server.port, "-c", "3", "-i", "0")
    with Server(os.path.join(BUILD, "examples", "echo"), "server", "0") as echo:
        wrong = xsock("ping", "127.0.0.1", echo.port, status=1)
        assert "is no 'xsock ping --listen'" in wrong.stderr, wrong.stderr
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        wrong = xsock("ping", "127.0.0.1", nobody.getsockname()[1], status=1)
        assert "refused" in wrong.stderr, wrong.stderr
    # A server that dies: the client says so and fails.
    server = Server(XSOCK, "ping", "--listen", "0")
    client = subprocess.Popen([XSOCK, "ping", "127.0.0.1", str(server.port), "-i", "0.02"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    client.stdout.readline()
    client.stdout.readline()
    server.process.kill()
    said = client.communicate(timeout=TIMEOUT)
    server.stop()
    assert client.returncode == 1 and "xsock ping: " in said[1], (client.returncode, said)


def test_rping():
    other = os.path.join(BUILD, "tests", "interop", "xsock_rping")
    with Server(XSOCK, "ping", "--rping", "--listen", "127.0.0.1:0") as server:
        for size in (64, 5000):
            arguments = ("ping", "--rping", "127.0.0.1", server.port, "-c", 5, "-s", size, "-v")
            if size == 64:
                said = xsock(*arguments).stdout
                assert said.count("ping data: rdma-ping-") == 5 and "5 pings" in said, said
            else:
                xsock(*arguments, status=1)  # the server was told of 64
        if os.path.exists(other):
            done = subprocess.run([other, "-c", "-a", "127.0.0.1", "-p", str(server.port), "-C",
                                   "100", "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=TIMEOUT, text=True, check=False)
            assert done.returncode == 0 and "rdma-ping-99" in done.stdout, done.stdout
    if not os.path.exists(other):
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    theirs = subprocess.Popen([other, "-s", "-a", "127.0.0.1", "-p", str(port), "-C", "20"])
    for _ in range(100):
        done = xsock("ping", "--rping", "127.0.0.1", port, "-c", 20, status=None)
        if done.returncode == 0:
            break
        time.sleep(0.05)
    assert "20 pings" in done.stdout, (done.stdout, done.stderr)
    assert theirs.wait(TIMEOUT) == 0, "rping -s failed"


# ---- perf ---------------------------------------------------------------------------------------

def measure(port, *arguments, host="127.0.0.1"):
    return xsock_json("perf", "client", host, port, "--json", "-q", *arguments)


def test_perf():
    quick = ("-r", "2", "-n", "40")
    with Server(XSOCK, "perf", "server", "127.0.0.1:0") as server:
        report = measure(server.port, *quick, "-s", "1,64,70000")
        assert len(report["rows"]) == 3 * 3 * 3 and report["crc"], report
        for row in report["rows"]:
            for name in ("xsock_rounds", "tcp_rounds", "ratio_rounds"):
                assert len(row[name]) == 2 and min(row[name]) > 0, row
            assert row["ratio"] > 0 and row["xsock"] > 0 and row["tcp"] > 0, row
        assert not measure(server.port, *quick, "-s", "64", "--no-crc")["crc"], "--no-crc"
        report = measure(server.port, *quick, "-t", "bandwidth,rate", "-b", "-c", "5", "-d", "7",
                         "-s", "100,9000")
        assert len(report["rows"]) == 12 and report["connections"] == 5, report
        report = measure(server.port, *quick, "--poll", "-s", "64", "-o", "send,read", "-t",
                         "latency", "--no-tcp")
        assert len(report["rows"]) == 2 and "ratio" not in report["rows"][0], report
        report = measure(server.port, "-T", "0.01", "-r", "1", "-s", "1M", "-d", "1")
        assert len(report["rows"]) == 9, report
        with tempfile.TemporaryDirectory(prefix="xsock-tools.") as work:
            picture = os.path.join(work, "picture.svg")
            table = xsock("perf", "client", "127.0.0.1", server.port, *quick, "-s", "64,4K,64K",
                          "--svg", picture).stdout
            assert len(re.findall(r"^(?:latency|bandwidth|rate) +[SWR]", table, re.M)) == 27, table
            root = xml.etree.ElementTree.parse(picture).getroot()
            lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
            assert len(lines) == 3 * (1 + 6), (len(lines), "lines")
            wrong = xsock("perf", "client", "127.0.0.1", server.port, "-n", "10", "-r", "1", "-s",
                          "64", "--svg", work + "/no/such", status=1)
            assert "No such file" in wrong.stderr, wrong.stderr
    if os.path.exists("/proc/sys/net/ipv6"):
        with Server(XSOCK, "perf", "server", "--once", "[::1]:0") as server:
            assert measure(server.port, *quick, "-s", "64", host="::1")["rows"], "IPv6"
            assert server.process.wait(TIMEOUT) == 0, "--once"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        wrong = xsock("perf", "client", "127.0.0.1", nobody.getsockname()[1], status=1)
        assert "xsock perf server" in wrong.stderr, wrong.stderr
    with Server(os.path.join(BUILD, "examples", "echo"), "server", "0") as echo:
        xsock("perf", "client", "127.0.0.1", echo.port, status=1)


def test_perf_hostile():
    """A server outlives standard peers, liars, and clients that are killed."""
    dice = random.Random(7)
    quick = ("-r", "1", "-n", "10", "-s", "64", "-t", "latency")

    def connect(data):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(data)
        return connection

    def control(kind, token=0, size=64, depth=1, connections=1, count=1, version=1, flags=0):
        return (b"xsockprf" + struct.pack(">IIQIIIIQQQQ", version, kind, token, 0, 0, flags, 0,
                                          size, depth, connections, count) + bytes(80))

    def receive(connection, size=152):
        got = b""
        while len(got) < size:
            try:
                piece = connection.recv(size - len(got))
            except ConnectionResetError:
                piece = b""
            if not piece:
                return got
            got += piece
        return got

    def begin():
        connection = connect(control(1))
        welcome = receive(connection)
        assert len(welcome) == 152 and struct.unpack_from(">I", welcome, 12)[0] == 2, welcome
        return connection, struct.unpack_from(">Q", welcome, 16)[0]

    with Server(XSOCK, "perf", "server", "127.0.0.1:0") as server:
        held = [connect(b"") for _ in range(80)]  # more than it keeps, and silent
        for _ in range(60):
            connect(dice.randbytes(dice.randrange(1, 400))).close()
        held.append(connect(b"xsockp"))  # half a word
        measure(server.port, *quick)
        # Data connections of no session; an MPA Request from a standard peer.
        receive(connect(b"xsock-perf-data\n" + bytes(48)))
        receive(connect(b"MPA ID Req Frame\x40\x02\0\0"))
        # Another version; wishes that make no sense.
        refused = receive(connect(control(1, version=9)))
        assert b"version 1" in refused, refused
        for nonsense in (control(3, size=1 << 40), control(3, depth=0), control(3, connections=65),
                         control(3, size=0), control(5), control(77), dice.randbytes(152)):
            connection, token = begin()
            connection.sendall(nonsense[:16] + struct.pack(">Q", token) + nonsense[24:])
            receive(connection)
            connection.close()
        connection, token = begin()
        connection.sendall(control(3, token=token ^ 1))  # another session
        assert receive(connection) == b"", "a wrong token is taken"
        # Busy with one, it tells the next.
        connection, token = begin()
        busy = xsock("perf", "client", "127.0.0.1", server.port, *quick, status=1)
        assert "busy" in busy.stderr, busy.stderr
        connection.close()
        until(lambda: xsock("perf", "client", "127.0.0.1", server.port, *quick,
                            status=None).returncode == 0, "the next client")
        # Killed in the midst.
        for kind in ("latency", "bandwidth"):
            victim = subprocess.Popen([XSOCK, "perf", "client", "127.0.0.1", str(server.port), "-T",
                                       "60", "-t", kind], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            time.sleep(1)
            victim.kill()
            victim.wait()
            until(lambda: xsock("perf", "client", "127.0.0.1", server.port, *quick,
                                status=None).returncode == 0, "the next client after a killed one")
        for connection in held:
            connection.close()


def test_completion():
    """The shells offer what --help says."""
    bash = shutil.which("bash")
    script = r"""
        . "$1/tools/completion/xsock.bash"
        offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _xsock; echo "${COMPREPLY[*]}"; }
        offer xsock ""
        offer xsock st
        offer xsock stat --js
        offer xsock perf ""
        offer xsock perf client --si
        offer xsock run --progress ""
        offer xsock info --policy bas
        offer xsock run --policy "$1/READ"
    """
    done = subprocess.run([bash, "--norc", "-c", script, "bash", TOP], stdout=subprocess.PIPE,
                          text=True, check=True, timeout=TIMEOUT,
                          env=dict(os.environ, PATH=os.path.dirname(XSOCK) + ":" + os.environ["PATH"]))
    said = done.stdout.split("\n")
    assert set(COMMANDS) <= set(said[0].split()), said[0]
    assert said[1] == "stat", said[1]
    assert said[2] == "--json", said[2]
    assert said[3].split() == ["server", "client"], said[3]
    assert said[4] == "--sizes", said[4]
    assert said[5].split() == ["app", "thread", "both"], said[5]
    assert "bash" in said[6].split(), said[6]
    assert said[7].endswith("/README.md"), said[7]
    zsh = shutil.which("zsh")
    if zsh:
        subprocess.run([zsh, "-n", os.path.join(TOP, "tools", "completion", "_xsock")], check=True,
                       timeout=TIMEOUT)
