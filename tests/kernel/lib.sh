# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# A guest with the kernel module: what guest_test.sh and the scripts that measure in one share.
# Sourced, never run. The script sets `build`, the folder of a build.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$here/../..
SIW_RUN=$(mktemp -d "${TMPDIR:-/tmp}/xsock-ddp.XXXXXX")
export SIW_RUN SIW_KERNEL
. "$top/tests/interop/vm/lib.sh"
vmctl=("$VM_DIR/vmctl.py" -n ddp)

# shellcheck disable=SC2317  # called by the trap
finish() {
    local status=$?
    trap - EXIT
    "${vmctl[@]}" stop || true
    if [ "$status" != 0 ] && [ "$status" != 77 ] && [ -s "$SIW_RUN/ddp/console.log" ]; then
        echo "--- the guest's console"
        tail -n 40 "$SIW_RUN/ddp/console.log"
    fi
    rm -rf "$SIW_RUN"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# build_module [VARIABLE=VALUE...]: the image, unless SIW_IMAGE names one, and the module built for its
# kernel, with variables of kbuild.
build_module() {
    local program checks=() old_sparse='sparse is not available or not up to date'
    if program=$(missing_program qemu-system-x86_64 python3 cpio gcc make strip); then
        skip "no $program: the kernel module is NOT tested (tests/setup/packages.txt)"
    fi
    SIW_IMAGE=${SIW_IMAGE:-$("$VM_DIR/build-image.sh" "$SIW_KERNEL")}
    export SIW_IMAGE
    # In a copy: kbuild writes beside its sources.
    mkdir -p "$SIW_RUN/source/include/xsock" "$SIW_RUN/package"
    cp -r "$top/ddp_kernel" "$SIW_RUN/source/"
    cp "$top/include/xsock/ddp_uapi.h" "$SIW_RUN/source/include/xsock/"
    # No BTF: that would need pahole.
    # With sparse, where there is one.
    if program=$(missing_program sparse); then
        echo "no $program: the module is NOT checked by it"
    else
        checks=(C=1 CF=-D__CHECK_ENDIAN__)
    fi
    make -s -C "$SIW_IMAGE/headers/build" M="$SIW_RUN/source/ddp_kernel" W=1 CC=gcc \
        "${checks[@]}" "$@" CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$SIW_RUN/module.log" 2>&1 || {
        cat "$SIW_RUN/module.log"
        die "the module did not compile for $SIW_KERNEL"
    }
    if grep -q "$old_sparse" "$SIW_RUN/module.log"; then
        echo "sparse is too old for this kernel: the module is NOT checked by it"
    fi
    # The packages' compiler may be a point release behind; everything else is a warning of ours.
    if grep -v -e 'the compiler differs from the one used to build' \
        -e '^  *\(The kernel was\|You are using\)' -e "$old_sparse" \
        "$SIW_RUN/module.log"; then
        die "the module compiled for $SIW_KERNEL with warnings"
    fi
}

# The programs that ask the module itself.
pack_programs() {
    local program
    for program in abi records allowed segments loss small_window release polled abi_fuzz failing \
        stress reload; do
        gcc -O2 -static -pthread -I"$top/include" -I"$here" "$here/$program.c" \
            "$here/ddp_test.c" "$here/user_level.c" "$here/handmade_peer.c" "$here/socket_calls.c" \
            -o "$SIW_RUN/package/$program" || die "$program.c does not compile"
    done
    gcc -O2 -static "$here/as_nobody.c" -o "$SIW_RUN/package/as_nobody" ||
        die "as_nobody.c does not compile"
}

# pack_library [PROGRAM...]: the library for programs of the API, those of the build folder, and what
# all these need and the guest may lack.
pack_library() {
    cp -L "$build/libxsock/libxsock.so.0" "$build/libxsock/libxsock-engine.so" "${@/#/$build/}" \
        "$SIW_RUN/package/"
    ldd "$build/tools/xsock" "$build/libxsock/libxsock-engine.so" "${@/#/$build/}" |
        awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' | sort -u |
        while read -r library; do
            case $library in "$build"/*) ;; *) cp -L "$library" "$SIW_RUN/package/" ;; esac
        done
}

# What the log of a kernel has where it found a fault, for grep -E.
# shellcheck disable=SC2034
reports='BUG:|WARNING:|Oops|INFO: |refcount_t|unregister_netdevice|general protection'

# start_guest OPTIONS...: of run-vm.sh. The module and what was packed lie in the guest's /share.
start_guest() {
    "$VM_DIR/run-vm.sh" -n ddp "$@"
    share=$("${vmctl[@]}" share)
    strip -g "$SIW_RUN/source/ddp_kernel/ddp_kernel.ko" -o "$share/ddp_kernel.ko"
    tar -C "$SIW_RUN/package" -cf "$share/package.tar" .
}

# guest_step SECONDS WORDS COMMAND: runs COMMAND in the guest and prints whether it held; what it
# printed is in $SIW_RUN/out.
failures=0
guest_step() {
    local began=$SECONDS
    if "${vmctl[@]}" -T "$1" run "$3" >"$SIW_RUN/out" 2>&1 &&
        ! grep -q '^not ok' "$SIW_RUN/out"; then
        if grep '^1\.\.0 # SKIP' "$SIW_RUN/out" >"$SIW_RUN/skipped"; then
            echo "SKIPPED  $2: $(sed 's/^1\.\.0 # SKIP //' "$SIW_RUN/skipped")"
            return
        fi
        echo "ok       $2 ($((SECONDS - began)) s)"
    else
        echo "FAILED   $2"
        sed 's/^/    /' "$SIW_RUN/out"
        failures=$((failures + 1))
    fi
}

# A command of the guest's shell that loads both: programs are in /x.
# shellcheck disable=SC2034  # used by those that source this
load='mkdir -p /x /dev/shm && tar -C /x -xf /share/package.tar &&
    { grep -q " /dev/shm " /proc/mounts || mount -t tmpfs none /dev/shm; } &&
    { grep -q " /sys/kernel/debug " /proc/mounts || mount -t debugfs none /sys/kernel/debug; } &&
    ip link set lo up && insmod /share/ddp_kernel.ko && ls /dev/ddp'

# One that makes the path of handmade_peer.h and runs `segments` there.
# shellcheck disable=SC2016,SC2034
segments='/bin/ip link add d0 type veth peer name d1 && /bin/ip address add 198.18.80.1/24 dev d0 &&
    /bin/ip link set d0 up && /bin/ip link set d1 up &&
    /bin/ip neigh add 198.18.80.2 lladdr 02:00:00:00:00:02 dev d0 nud permanent && /x/segments; r=$?;
    /bin/ip link del d0; exit $r'

# And one that waits until nothing of the module is left, nor a page that the kernel counts as pinned. It
# fails after 10 s, or, while TCP still has a closed socket whose peer is silent, after 110. (The guest is
# given a command as one line.)
# shellcheck disable=SC2016,SC2034  # the guest's shell expands; used by those that source this
nothing_left='cd /sys/kernel/debug/ddp;
    pins() { cat /proc/sys/vm/stat_refresh; sed -n "s/^nr_foll_pin_[ar][a-z]* //p" /proc/vmstat; };
    now() { cut -d. -f1 /proc/uptime; }; began=$(now); alone=0;
    until [ "$(cat domains regions sockets pages | sort -u)" = 0 ] && [ $(pins | uniq | wc -l) = 1 ]; do
        alone=$((alone + 1));
        if [ "$(cat regions pages | sort -u)" = 0 ] &&
            cat /proc/net/tcp /proc/net/tcp6 | grep -q " 0[459B] "; then alone=0; fi;
        took=$(($(now) - began));
        if [ $took -gt 110 ] || { [ $took -gt 10 ] && [ $alone -gt 3 ]; }; then
            grep . domains regions sockets pages; echo pins, and ends of them: $(pins);
            cat /proc/net/tcp; exit 1;
        fi;
        sleep 1;
    done'
