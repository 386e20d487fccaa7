#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What a user does with an installed xsock: finds it by CMake and by pkg-config, from C and from C++,
# compiles with every warning, links, runs. The installed folder is moved first: nothing in it may
# know where it was.
#
#   install_test.sh BUILD
set -euo pipefail
build=$(cd "${1:?usage: install_test.sh BUILD}" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL  $*" >&2
    exit 1
}
ok() { echo "ok    $*"; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || {
    cat "$work/install.log" >&2
    fail "cmake --install"
}
prefix=$work/moved/here
mkdir -p "$work/moved"
mv "$work/first" "$prefix"
library=$(find "$prefix" -name libxsock.so)
[ -n "$library" ] || fail "no libxsock.so"
libdir=$(dirname "$library")

# ---- What lies there ----------------------------------------------------------------------------
[ "$(ls "$prefix/include")" = xsock ] || fail "include/ holds more than xsock: $(ls "$prefix/include")"
[ -e "$libdir/libxsock.so.0" ] || fail "no libxsock.so.0 (SOVERSION)"
if grep -rl "$work/first" "$prefix"; then fail "these files know their prefix"; fi
ok "files"

# Everything else is hidden: a symbol of ours must not meet one of the program's.
exported() { nm -D --defined-only --no-demangle "$1" | awk '$2 ~ /[TWBDVRi]/ {print $3}'; }
top=$(cd "$(dirname "$0")/../.." && pwd)
libc_calls() { sed -nE 's/^ +(CALL|ALIAS)\(([a-zA-Z0-9_]+),.*/\2/p' "$top/libxsock/overlay/libc_calls.h"; }
others=$(exported "$library" | grep -v '^xsock_' | grep -vxF -f <(libc_calls) || true)
[ -z "$others" ] || fail "libxsock.so exports these: $others"
if [ -e "$libdir/xsock/libxsock-preload.so" ]; then
    wrong=$(exported "$libdir/xsock/libxsock-preload.so" | sort |
        comm -3 - <({ libc_calls && echo xsock_overlay; } | sort))
    [ -z "$wrong" ] || fail "libxsock-preload.so exports more or less than the list: $wrong"
fi
if [ -e "$libdir/xsock/libxsock-engine.so" ]; then
    [ "$(exported "$libdir/xsock/libxsock-engine.so" | wc -l)" = 1 ] ||
        fail "libxsock-engine.so exports more than its table"
fi
ok "exported symbols"

# A child that is forked while another thread initialises a static local finds its guard taken for
# ever (base/once.hpp).
for file in "$library" "$libdir"/xsock/*.so; do
    [ -e "$file" ] || continue
    guarded=$(nm -C "$file" | sed -n 's/.*guard variable for \(xsock.*\)/\1/p')
    [ -z "$guarded" ] || fail "$(basename "$file") has static locals with a guard: $guarded"
done
[ "$(nm -C "$libdir/xsock/libxsock-engine.so" | grep -c 'guard variable for std::')" != 0 ] ||
    fail "libxsock-engine.so does not show what has a guard"
ok "static locals"

# ---- Two programs -------------------------------------------------------------------------------
# xsock_pd_create() goes through the engine: it must have been found.
mkdir "$work/program"
cat >"$work/program/main.c" <<'PROGRAM'
#include <stdio.h>
#include <xsock/iwarp.h>
#include <xsock/xsock.h>

int main(void)
{
    struct xsock_pd *pd = xsock_pd_create();
    struct xsock_cq *cq = xsock_cq_create(NULL);

    if (pd == NULL || cq == NULL) {
        perror("xsock");
        return 1;
    }
    printf("%s\n", xsock_version());
    return xsock_cq_destroy(cq) != 0 || xsock_pd_destroy(pd) != 0;
}
PROGRAM
sed 's/NULL/nullptr/; s/main(void)/main()/' "$work/program/main.c" >"$work/program/main.cpp"
cat >"$work/program/CMakeLists.txt" <<'PROGRAM'
cmake_minimum_required(VERSION 3.16)
project(program C CXX)
find_package(xsock 0.1 REQUIRED)
foreach(language c cpp)
    add_executable(program_${language} main.${language})
    target_link_libraries(program_${language} PRIVATE xsock::xsock)
    target_compile_options(program_${language} PRIVATE -Wall -Wextra -Wpedantic -Werror)
endforeach()
PROGRAM
runs() { # what, program
    local said
    said=$("$2") || fail "$1: exit status $?"
    [ -n "$said" ] || fail "$1 printed nothing"
    ok "$1: $said"
}

cmake -S "$work/program" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 &&
    cmake --build "$work/cmake" >>"$work/cmake.log" 2>&1 || {
    cat "$work/cmake.log" >&2
    fail "find_package(xsock)"
}
runs "find_package, C" "$work/cmake/program_c"
runs "find_package, C++" "$work/cmake/program_cpp"

export PKG_CONFIG_PATH=$libdir/pkgconfig
flags=$(pkg-config --cflags --libs xsock) || fail "pkg-config xsock"
# shellcheck disable=SC2086
{
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/program/main.c" -o "$work/c" $flags
    c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror "$work/program/main.cpp" -o "$work/cpp" $flags
}
export LD_LIBRARY_PATH=$libdir
runs "pkg-config, C" "$work/c"
runs "pkg-config, C++" "$work/cpp"
