# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# A guest with the kernel module in which something is measured; sourced behind `build`, never run.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What the programs that measure are told: both namespaces, and the address in the second.
# shellcheck disable=SC2034
namespaces="/run/netns/a /run/netns/b 198.18.79.2"

# A command in the guest.
guest() { "${vmctl[@]}" -T 600 run "export LD_LIBRARY_PATH=/x; $1"; }

# start_guest_with OPTIONS-OF-RUN-VM -- PROGRAM...: of bench/
start_guest_with() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    for program in "$@"; do
        [ -x "$build/bench/$program" ] || die "$build/bench/$program is not built"
    done
    build_module >&2
    pack_library
    for program in "$@"; do cp "$build/bench/$program" "$SIW_RUN/package/"; done
    start_guest "${options[@]}" >&2
    cp "$here/guest_path.sh" "$share/"
    guest "$load" >&2
    guest "mount -t tracefs none /sys/kernel/tracing; chmod 666 /dev/ddp"
}

# start_measuring PROGRAM...: in a guest whose time counts instructions. TCG moves octet by octet
# where a processor says that it moves fast (REP MOVSB), which counts every one.
start_measuring() { start_guest_with -I -m max,-erms,-fsrm -- "$@"; }
