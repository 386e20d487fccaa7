# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# Samples that are two fresh processes with a processor each, in two ways that take turns. Sourced
# behind programs_lib.sh, by a script that sets `ways` (base, subject) and defines
#   sample ROW WAY          prints its figure
#   row_of ROW              prints name:unit:limit:aim, a `<` where less is better, and what it needs
# shellcheck disable=SC2154
for way in "${ways[@]}"; do ports[$way]=0; done
under() {
    prefix=()
    [ "$(nproc)" -lt 2 ] || case $1 in
        server) prefix=(taskset -c 0) ;;
        client) prefix=(taskset -c 1) ;;
    esac
}
# pair SERVER-COMMAND @ CLIENT-COMMAND: prints what the client prints; PORT becomes a free port.
pair() {
    local server=()
    port=$(free_port)
    while [ "$1" != @ ]; do server+=("${1//PORT/$port}") && shift; done
    shift
    serve server "${server[@]}"
    run_client client "${@//PORT/$port}"
    wait "${pids[server]}" || die "the server failed: ${server[*]}" "$work/server-server.log"
    unset "pids[server]"
}
# last PATTERN COLUMN: of the last such line; there must be one.
last() { awk -v c="$2" -v p="$1" '$0 ~ p { v = $c } END { if (v == "") exit 1; print v }'; }
ucx() {  # ucx COLUMN ARGS...
    local column=$1
    shift
    pair ucx_perftest -p PORT @ ucx_perftest 127.0.0.1 -p PORT "$@" | last '^Final:' "$column"
}
scaled() { awk -v by="$1" '{ print $1 * by }'; }
figure() {  # figure WAY: of the row under way
    local value
    value=$(sample "$measured" "$1")
    echo "$measured $value"
}
measure() {  # measure ROW: a line of the table
    local measured=$1
    local -a needed
    read -ra needed < <(row_of "$measured")
    need ss taskset "${needed[@]:1}" || return 77
    take_turns "${ways[@]}" figure >"$work/figures"
    python3 "$here/table.py" ratios "${markdown[@]}" "${ways[@]}" "${needed[0]}" <"$work/figures"
}
