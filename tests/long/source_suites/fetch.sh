#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Fetches the source of a Debian package of this machine's release, unpacks it in the cache and prints
# the folder; a second run finds it there and needs no network. Nothing is installed and no privilege
# is needed: apt reads a source list of its own and keeps its lists in a scratch folder. To have a
# newer version, remove the folder.
#
#   fetch.sh PACKAGE
#
# Exit status 77: something is missing, and standard error says what.
set -euo pipefail
. "$(dirname "$0")/../../setup/source_cache.sh"
package=$1
cached_or_lock "source-$package"

for program in apt-get apt-cache dpkg-source; do
    command -v $program >/dev/null || skip "no $program to fetch the source of $package with"
done
# shellcheck disable=SC2016  # apt's own variables
archives=$(apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Origin: Debian' 'Created-By: Packages' 2>/dev/null | sort -u) || true
[ -n "$archives" ] || skip "apt's sources name no Debian archive (or were never updated)"
begin_download source

# The newest version first. A mirror may list a security update and not hold its sources; then the
# release's own.
for without in '^$' security; do
    grep -v "$without" <<<"$archives" >"$scratch/sources.list" || continue
    apt-get "${own_apt[@]}" -o APT::Update::Error-Mode=any update >"$scratch/log" 2>&1 || {
        tail -n 5 "$scratch/log" >&2
        skip "the source lists of Debian could not be downloaded"
    }
    version=$(apt-cache "${own_apt[@]}" madison "$package" | awk -F ' *\\| *' '
        $3 ~ /Sources$/ { print $2 }' | sort -rV | head -n 1)
    [ -n "$version" ] || continue
    echo "$package: downloading $version" >&2
    if (cd "$scratch" && apt-get "${own_apt[@]}" source --download-only "$package=$version" &&
        dpkg-source --no-check -x "${package}_${version#*:}.dsc" source) >"$scratch/log" 2>&1; then
        place=$cache/source-$package-${version#*:}
        rm -rf "$place"
        mkdir "$place"
        mv "$scratch/source" "$place/source"
        echo "$version" >"$place/complete"
        echo "$place"
        exit 0
    fi
done
tail -n 5 "$scratch/log" >&2
skip "the source of $package could not be downloaded and unpacked"
