# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Set-up shared by ./run and ./test; sourced, never run.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
jobs=$(nproc)

# Where Debian keeps ip; not on the path of every user.
PATH=$PATH:/usr/sbin:/sbin

say() { printf '== %s\n' "$*"; }
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# The packages of the named sections of tests/setup/packages.txt.
packages_of() {
    awk -v wanted=" $* " '
        /^#/ || NF == 0 { next }
        /^\[/ { section = substr($1, 2, length($1) - 2); next }
        index(wanted, " " section " ") { print $1 }' "$top/tests/setup/packages.txt"
}

# Those of the given packages that are not installed. A package that another one provides counts.
missing_packages() {
    local installed
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n' |
        sed -n 's/^installed //p' | sed 's/([^)]*)//g; s/,/ /g' | tr -s ' ' '\n')
    grep -vxF -f <(printf '%s\n' "$installed") <(printf '%s\n' "$@") || true
}

# Debian starts the services that it installs, now and at every boot. They are here to be started by
# tests, on ports of their own. PostgreSQL would also make a database.
policy=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/xsock.conf
services_stay_down() {
    mkdir -p ${no_cluster%/*}
    echo "create_main_cluster = false" >$no_cluster
    # One that is kept already is of a run that was killed: what is in its place is ours.
    [ ! -e $policy ] || [ -e $policy.before-xsock ] || mv $policy $policy.before-xsock
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
}
services_as_before() {  # services_as_before NEWLY-INSTALLED-PACKAGE...
    rm -f $policy $no_cluster
    rmdir -p --ignore-fail-on-non-empty ${no_cluster%/*}
    [ ! -e $policy.before-xsock ] || mv $policy.before-xsock $policy
    local unit
    for unit in "$@"; do
        case $unit in
        openssh-server) unit=ssh ;;
        nginx-light) unit=nginx ;;
        mariadb-server) unit=mariadb ;;
        postgresql-15) unit=postgresql ;;
        esac
        [ -e "/lib/systemd/system/$unit.service" ] || continue
        systemctl --quiet disable "$unit.service" >>"$top/build/apt.log" 2>&1 || true
    done
}

# Installs what is missing of the named sections: as root by apt; otherwise says how and stops. Goes
# on in silence when nothing is missing. XSOCK_SETUP=0 leaves the machine alone and tries its luck.
setup() {
    [ "${XSOCK_SETUP:-1}" != 0 ] || return 0
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "no apt here; needed are the equivalents of: $(packages_of "$@" | xargs)"
        return 0
    fi
    local missing
    # shellcheck disable=SC2046
    missing=$(missing_packages $(packages_of "$@") | xargs)
    [ -n "$missing" ] || return 0
    local line="apt-get install -y --no-install-recommends $missing"
    if [ "$(id -u)" -ne 0 ]; then
        say "missing packages; as root:"
        printf '    apt-get update && %s\n' "$line"
        die "run that, then this again (or XSOCK_SETUP=0 $0 to go on without)"
    fi
    mkdir -p "$top/build"
    local log=$top/build/apt.log
    say "apt-get update"
    apt-get update -qq >"$log" 2>&1 ||
        say "apt-get update had trouble (build/apt.log); going on with the index there is"
    say "installing: $missing"
    local failed=
    # shellcheck disable=SC2086
    (
        trap 'services_as_before $missing' EXIT
        services_stay_down
        # apt refuses to go on behind an installation that was killed until this has been done.
        if [ -n "$(dpkg --audit)" ]; then
            say "an earlier installation was interrupted; first: dpkg --configure -a"
            DEBIAN_FRONTEND=noninteractive dpkg --configure -a --force-confdef --force-confold \
                </dev/null >>"$log" 2>&1 || say "dpkg --configure -a had trouble (build/apt.log)"
        fi
        DEBIAN_FRONTEND=noninteractive $line -qq -o DPkg::Lock::Timeout=300 \
            -o Dpkg::Use-Pty=0 >>"$log" 2>&1
    ) || failed=1
    [ -z "$failed" ] || {
        tail -n 20 "$log" >&2
        die "apt-get install failed; the whole log is build/apt.log"
    }
}

# Configures and builds build/<preset>; the log goes to stdout. Further arguments are targets.
# Warnings are errors in CI only: a newer compiler must not stop a user. XSOCK_TESTS=OFF leaves the
# tests and what they need (GoogleTest) out.
build() {
    local preset=$1
    shift
    if command -v ccache >/dev/null; then
        export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
        # A second clone finds the work of the first.
        export CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1
    fi
    local werror=OFF
    [ "${CI:-}" != true ] || werror=ON
    (cd "$top" && cmake --preset "$preset" -DXSOCK_WERROR=$werror -DXSOCK_TESTS="${XSOCK_TESTS:-ON}" &&
        cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"})
}
