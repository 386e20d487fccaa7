#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Fetches verbs programs of Debian 13 (trixie) with the libraries that they need, C library included,
# unpacks them into the cache, and prints the folder; a second run finds it there and needs no network.
# Its bin/ has a script for each program, by which it runs with its own dynamic linker and libraries,
# xsock's in front. Nothing is installed and no privilege is needed. To fetch newer versions, remove
# the folder.
#
#   debian13_programs.sh
#
# Exit status 77: something is missing, and standard error says what.
set -euo pipefail
packages=(ucx-utils perftest ibverbs-utils infiniband-diags rdmacm-utils)
. "$(dirname "$0")/../setup/source_cache.sh"

say() { echo "Debian 13: $*" >&2; }

recipe=$(sha256sum <"$0" | cut -c1-16)
cached_or_lock debian13 "$recipe"
for program in apt-get apt-cache dpkg; do
    command -v $program >/dev/null || skip "no $program to fetch Debian 13's programs with"
done

# shellcheck disable=SC2016  # apt's own variables
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' \
    'Created-By: Packages' 2>/dev/null | sort -u | head -n 1) || true
[ -n "$archive" ] || skip "apt's sources name no Debian archive (or were never updated)"
begin_download debian13
echo "deb $archive trixie main" >"$scratch/sources.list"
# No package counts as installed: all that they need is fetched.
: >"$scratch/status"
own_apt+=(-o "Dir::State::status=$scratch/status")
say "downloading the lists of trixie"
apt-get "${own_apt[@]}" -o APT::Update::Error-Mode=any update >"$scratch/update.log" 2>&1 || {
    tail -n 5 "$scratch/update.log" >&2
    skip "the package lists of Debian 13 could not be downloaded"
}
say "downloading ${packages[*]}, and what they need"
apt-get "${own_apt[@]}" --no-install-recommends --download-only -y install "${packages[@]}" libc6 \
    >"$scratch/download.log" 2>&1 || {
    tail -n 5 "$scratch/download.log" >&2
    skip "the packages of Debian 13 could not be downloaded"
}
root=$scratch/root
mkdir -p "$root/bin"
for package in "$scratch"/apt/archives/*.deb; do dpkg -x "$package" "$scratch/unpacked"; done
mv "$scratch/unpacked/usr" "$root/usr"
version=$(apt-cache "${own_apt[@]}" show ucx-utils | sed -n 's/^Version: //p' | head -n 1)

libraries=$(cd "$root" && echo usr/lib/*-linux-gnu)
linker=$(cd "$root" && echo usr/lib/*-linux-gnu/ld-linux-*.so.*)
[ -x "$root/$linker" ] || {
    say "no dynamic linker in $root"
    exit 1
}
for program in "$root"/usr/bin/ibv_* "$root"/usr/bin/ib_* "$root"/usr/bin/ucx_* \
    "$root"/usr/bin/{rping,udaddy,udpong} "$root"/usr/sbin/ibstat; do
    [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
    name=${program##*/}
    # (xsock run puts its libraries into LD_LIBRARY_PATH, which that linker ignores for itself.)
    cat >"$root/bin/$name" <<WRAPPER
#!/bin/sh
root=\$(dirname "\$(dirname "\$0")")
exec "\$root/$linker" --library-path "\${LD_LIBRARY_PATH%%:*}:\$root/$libraries:\$root/$libraries/libibverbs" \\
    --argv0 $name "\$root${program#"$root"}" "\$@"
WRAPPER
    chmod +x "$root/bin/$name"
done
folder=$cache/debian13-ucx-${version//[:~]/_}
rm -rf "$folder"
mv "$root" "$folder"
echo "$recipe" >"$folder/complete"
echo "$folder"
