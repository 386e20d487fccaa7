# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Sources of Debian's archive, fetched once and kept in a cache; sourced, never run. A folder of the
# cache is complete when it holds a file `complete`.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/xsock

skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}

# newest_cached NAME [RECIPE]: prints the newest complete folder NAME-*, of those whose `complete` has
# the text RECIPE if that is given; fails when there is none.
newest_cached() {
    local stamp newest=
    for stamp in "$cache/$1"-*/complete; do
        [ -e "$stamp" ] || continue
        [ $# = 1 ] || [ "$(cat "$stamp")" = "$2" ] || continue
        if [ -z "$newest" ] || [ "$stamp" -nt "$newest" ]; then newest=$stamp; fi
    done
    [ -n "$newest" ] && dirname "$newest"
}

# cached_or_lock NAME [RECIPE]: ends the script when newest_cached() finds one. Otherwise no other
# script makes a NAME until this one ends, and then it finds the work of this one.
cached_or_lock() {
    if newest_cached "$@"; then exit 0; fi
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    flock 9
    if newest_cached "$@"; then exit 0; fi
}

# begin_download NAME: makes $scratch, which goes when the script ends, and $own_apt: options by which
# apt reads $scratch/sources.list and keeps its lists there, without privileges.
begin_download() {
    scratch=$(mktemp -d "$cache/$1-scratch.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    mkdir -p "$scratch"/{lists/partial,apt/archives/partial}
    # shellcheck disable=SC2034  # the script's
    own_apt=(-qq -o "Dir::Etc::SourceList=$scratch/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/apt" -o APT::Sandbox::User=root)
}
