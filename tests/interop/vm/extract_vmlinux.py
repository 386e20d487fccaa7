#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Unpacks the ELF kernel out of a bzImage.

QEMU boots the ELF directly through its PVH entry note, which saves the kernel's own
decompression: several seconds under TCG.

    extract_vmlinux.py BZIMAGE ELF
"""
import lzma
import struct
import subprocess
import sys
import zlib

ELF = b"\x7fELF"


def unpack_zstd(data):
    """By the program: Python has no module for it."""
    try:
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False).stdout
    except FileNotFoundError:
        sys.exit("siw image: no zstd (tests/setup/packages.txt); the guest boots slower packed")


PAYLOADS = {
    b"\xfd7zXZ\x00": lambda data: lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(data),
    b"\x1f\x8b\x08": lambda data: zlib.decompressobj(31).decompress(data),
    b"\x28\xb5\x2f\xfd": unpack_zstd,
}


def main():
    source, target = sys.argv[1:3]
    with open(source, "rb") as f:
        image = f.read()
    if image[0x202:0x206] != b"HdrS":
        sys.exit("siw image: %s is no bzImage" % source)
    # Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length. The length
    # includes the four bytes behind the packed kernel that tell its size.
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (image[0x1F1] + 1) * 512 + offset
    payload, size = image[start:start + length - 4], image[start + length - 4:start + length]
    for magic, unpack in PAYLOADS.items():
        if not payload.startswith(magic):
            continue
        try:
            kernel = unpack(payload)
        except (lzma.LZMAError, zlib.error) as error:
            sys.exit("siw image: %s: %s" % (source, error))
        if kernel.startswith(ELF) and len(kernel) == struct.unpack("<I", size)[0]:
            with open(target, "wb") as f:
                f.write(kernel)
            return
    sys.exit("siw image: no ELF kernel in %s; it boots slower packed" % source)


if __name__ == "__main__":
    main()
