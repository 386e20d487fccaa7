# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Settings shared by the scripts of the siw guest; sourced, never run. Two folders, both outside of
# the tree: the image is expensive to make and lives in the cache; what belongs to a running guest
# (agent socket, console log, pid) lives in SIW_RUN and may be deleted after it.
VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SIW_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/xsock
SIW_RUN=${SIW_RUN:-${TMPDIR:-/tmp}/xsock-siw-$(id -u)}
SIW_KERNEL=${SIW_KERNEL:-6.1}  # of Debian 12's: 6.1 or 6.12
SIW_NETNS=${SIW_NETNS:-xsock-siw}
SIW_NET=${SIW_NET:-10.77.0}   # the /24 used inside the namespace: host .1, guest ID i .(i+1)

die() {
    echo "siw: $*" >&2
    exit 1
}

# Exit status 77: ctest (SKIP_RETURN_CODE) counts a facility that is missing as a skip, not a pass.
skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}

# The first of the named programs that is missing, if any. sbin is where Debian keeps ip and depmod.
PATH=$PATH:/usr/sbin:/sbin
missing_program() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || {
            echo "$program"
            return 0
        }
    done
    return 1
}

# The newest complete image of a kernel (6.1, 6.12) in the cache; empty when there is none.
newest_image() {
    local stamp
    stamp=$(ls -t "$SIW_CACHE/siw-$1".*/complete 2>/dev/null | head -n 1)
    [ -z "$stamp" ] || dirname "$stamp"
}
