#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds valkey with RDMA from Debian's sources and prints the folder of the programs; a second run
# finds them in the cache and needs no network. The server is 8.1 of Debian 13 (trixie), with the
# RDMA test client of its source tree (rdma-test). The clients of 8.1 know no RDMA, so valkey-cli
# and valkey-benchmark are those of the version in Debian's testing suite (forky). Nothing is
# installed and no privilege is needed: apt reads a source list of its own, keeps its lists in a
# scratch folder, and downloads from the archive that this machine's own sources name. To build
# anew, or newer versions, remove the folder.
#
#   valkey_build.sh
#
# Exit status 77: something is missing, and standard error says what.
set -euo pipefail
suites=(trixie forky)  # the server's, the clients'
. "$(dirname "$0")/../setup/source_cache.sh"

say() { echo "valkey: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# ---- In the cache? -----------------------------------------------------------------------------
recipe=$(sha256sum <"$0" | cut -c1-16)
cached_or_lock valkey "$recipe"

for program in apt-get apt-cache dpkg-source make gcc pkg-config; do
    command -v $program >/dev/null || skip "no $program to build valkey with"
done
pkg-config --exists librdmacm libibverbs ||
    skip "no libibverbs-dev, librdmacm-dev to build valkey with"

# ---- Sources -----------------------------------------------------------------------------------
# shellcheck disable=SC2016  # apt's own variables
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' \
    'Created-By: Packages' 2>/dev/null | sort -u | head -n 1) || true
[ -n "$archive" ] || skip "apt's sources name no Debian archive (or were never updated)"
begin_download valkey
for suite in "${suites[@]}"; do echo "deb-src $archive $suite main"; done >"$scratch/sources.list"
say "downloading the lists of ${suites[*]}"
apt-get "${own_apt[@]}" -o APT::Update::Error-Mode=any update >"$scratch/update.log" 2>&1 || {
    tail -n 5 "$scratch/update.log" >&2
    skip "the source lists of valkey could not be downloaded"
}
# The version of a suite. A suite may hold an older one beside it.
version_in() {
    apt-cache "${own_apt[@]}" madison valkey | awk -F ' *\\| *' -v suite="$1/main" '
        { split($3, place, " ") }
        place[2] == suite { print $2 }' | sort -rV | head -n 1
}
server_version=$(version_in "${suites[0]}")
client_version=$(version_in "${suites[1]}")
case $server_version in
8.1.*) ;;
*) skip "${suites[0]} has no valkey 8.1: ${server_version:-none}" ;;
esac
[ -n "$client_version" ] || skip "${suites[1]} has no valkey"

# fetch VERSION FOLDER: downloads and unpacks it.
fetch() {
    say "downloading $1"
    (cd "$scratch" && apt-get "${own_apt[@]}" source --download-only "valkey=$1" &&
        dpkg-source --no-check -x "valkey_${1#*:}.dsc" "$2") >"$scratch/$2.log" 2>&1 || {
        tail -n 5 "$scratch/$2.log" >&2
        skip "the source of valkey $1 could not be downloaded and unpacked"
    }
}
fetch "$server_version" server
fetch "$client_version" client

# ---- Programs ----------------------------------------------------------------------------------
# libc's allocator: building the other one takes longer than all the rest.
options=(BUILD_RDMA=yes BUILD_TLS=no USE_SYSTEMD=no MALLOC=libc)
compile() {  # compile FOLDER PART TARGETS...
    local folder=$1 part=$2
    shift 2
    say "compiling $* ($folder)"
    make -C "$scratch/$folder/$part" -j "$(nproc)" "${options[@]}" "$@" \
        >"$scratch/$folder.log" 2>&1 || {
        tail -n 20 "$scratch/$folder.log" >&2
        die "valkey ($folder) did not compile"
    }
}
compile server src valkey-server
compile server tests/rdma rdma-test
compile client src valkey-cli valkey-benchmark
place=$cache/valkey-$server_version
rm -rf "$place"
mkdir "$place"
cp "$scratch"/server/src/valkey-server "$scratch"/server/tests/rdma/rdma-test \
    "$scratch"/client/src/{valkey-cli,valkey-benchmark} "$place/"
echo "server $server_version, clients $client_version" >"$place/versions"
echo "$recipe" >"$place/complete"
say "$(cat "$place/versions"), $(du -sh "$place" | cut -f1) in $place"
echo "$place"
