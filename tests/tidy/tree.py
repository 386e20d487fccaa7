# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The files of the project, for the checks beside this one."""
import os
import subprocess

SOURCES = (".c", ".h", ".cpp", ".hpp")
NOT_OURS = {".git", ".cache", "build"}


def files(top):
    """Paths relative to `top`: what git tracks or would track; everything where there is no git."""
    if os.path.exists(os.path.join(top, ".git")):
        listed = subprocess.run(
            ["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            stdout=subprocess.PIPE, check=False)
        if listed.returncode == 0:
            paths = sorted(set(listed.stdout.decode().split("\0")) - {""})
            return [path for path in paths if os.path.isfile(os.path.join(top, path))]
    found = []
    for folder, below, names in os.walk(top):
        below[:] = sorted(b for b in below if b not in NOT_OURS and not b.startswith("build-"))
        found += [os.path.relpath(os.path.join(folder, name), top) for name in sorted(names)]
    return found


def text(top, path):
    """The file's text, or None where it is not text."""
    with open(os.path.join(top, path), "rb") as f:
        content = f.read()
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
