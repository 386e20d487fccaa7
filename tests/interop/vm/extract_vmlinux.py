#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Unpacks the ELF kernel out of a bzImage.

QEMU boots the ELF directly through its PVH entry note, which saves the kernel's own
decompression: several seconds under TCG.

    extract_vmlinux.py BZIMAGE ELF
"""
import lzma
import sys
import zlib

ELF = b"\x7fELF"
PAYLOADS = (
    (b"\xfd7zXZ\x00", lambda data: lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(data)),
    (b"\x1f\x8b\x08", lambda data: zlib.decompressobj(31).decompress(data)),
)


def main():
    source, target = sys.argv[1:3]
    with open(source, "rb") as f:
        image = f.read()
    if image[0x202:0x206] != b"HdrS":
        sys.exit("siw image: %s is no bzImage" % source)
    for magic, unpack in PAYLOADS:
        at = image.find(magic)
        while at >= 0:
            try:
                kernel = unpack(image[at:])
            except (lzma.LZMAError, zlib.error):
                kernel = b""
            if kernel.startswith(ELF):
                with open(target, "wb") as f:
                    f.write(kernel)
                return
            at = image.find(magic, at + 1)
    sys.exit("siw image: no ELF kernel in %s; it boots slower packed" % source)


if __name__ == "__main__":
    main()
