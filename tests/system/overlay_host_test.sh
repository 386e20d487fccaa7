#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The preload library and the process it is in: what it brings along, which processes it stays away
# from, what it counts.
#   overlay_host_test.sh LIBXSOCK-PRELOAD.SO
set -u -o pipefail
preload=$(realpath "${1:?usage: overlay_host_test.sh LIBXSOCK-PRELOAD.SO}")
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-overlay.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
skipped=0
check() {  # check WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then
        echo "ok    $what"
    else
        echo "FAIL  $what"
        failures=$((failures + 1))
    fi
}
python=/usr/bin/python3
[ -x $python ] || python=python3
under() { LD_PRELOAD=$preload "$@"; }

# ---- What a program that uses no DDPMODE gets: one library, no thread, no engine ------------------
cat >"$work/quiet.py" <<'PYTHON'
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
served, _ = server.accept()
client.sendall(b"x" * 1000)
assert len(served.recv(1000, socket.MSG_WAITALL)) == 1000
maps = open("/proc/self/maps").read()
assert "libxsock-preload.so" in maps, "not preloaded"
for foreign in ("xsock-engine", "libstdc++", "libuv"):
    assert foreign not in maps, foreign
assert os.listdir("/proc/self/task") == [str(os.getpid())], "a thread was started"
PYTHON
check "plain sockets: no engine, no thread, no C++" under $python "$work/quiet.py"
check "a program without sockets" under /bin/true

# ---- Setuid programs: the loader leaves it out ----------------------------------------------------
maps_of() { LD_PRELOAD=$preload "$1" /proc/self/maps; }
if [ "$(id -u)" -ne 0 ]; then
    echo "SKIP  setuid: only root can make one"
    skipped=1
elif findmnt -no OPTIONS -T "$work" | grep -qw nosuid; then
    echo "SKIP  setuid: $work is mounted nosuid"
    skipped=1
else
    cp /bin/cat "$work/setuid-cat"
    chown nobody "$work/setuid-cat"
    chmod 4755 "$work/setuid-cat"
    chmod 755 "$work"
    check "cat has the overlay" grep -q libxsock-preload <(maps_of /bin/cat)
    # shellcheck disable=SC2317
    without_it() { ! maps_of "$work/setuid-cat" 2>/dev/null | grep -q libxsock; }
    check "setuid cat has it not" without_it
    check "setuid cat works" test -n "$(maps_of "$work/setuid-cat" 2>/dev/null)"
fi

# ---- The summary ----------------------------------------------------------------------------------
cat >"$work/counted.py" <<'PYTHON'
import os, socket, sys
how = sys.argv[1]
server = socket.create_server(("127.0.0.1", 0))
clients = [socket.create_connection(server.getsockname()) for _ in range(3)]
served = [server.accept()[0] for _ in range(2)]
a, b = socket.socketpair()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
if os.fork() == 0:
    if how == "fork":
        socket.create_connection(server.getsockname())
    os._exit(0)
os.wait()
if how == "exec":
    os.execv("/bin/true", ["true"])
if how == "_exit":
    os._exit(0)
PYTHON
counted() {  # counted HOW END CHILD-LINE
    : >"$work/summary"
    XSOCK_SUMMARY=$work/summary under $python "$work/counted.py" "$1" || return 1
    if ! grep -Eq "^xsock-summary 1 pid=[0-9]+ ppid=$$ end=$2 sockets=4 connected=3 accepted=2 \
listening=1 asked=0 inherited=0 program=/.*python3[0-9.]*$" "$work/summary" ||
        [ "$(wc -l <"$work/summary")" -ne "$3" ]; then
        cat "$work/summary"
        return 1
    fi
}
check "summary at exit" counted exit exit 1
check "summary at _exit" counted _exit exit 1
check "summary at exec" counted exec exec 1
check "a child counts its own" counted fork exit 2
: >"$work/summary"
XSOCK_SUMMARY=$work/summary under /bin/true
check "no line without sockets" test ! -s "$work/summary"

[ $failures -eq 0 ] || exit 1
[ $skipped -eq 0 ] || exit 77
