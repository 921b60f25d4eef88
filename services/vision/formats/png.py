"""PNG, chunk by chunk (https://www.w3.org/TR/png-3/)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from services.vision.formats import exif
from services.vision.formats.outline import MAX_PARTS, Outline, broken, cut_short, followed

MAGIC = b"\x89PNG\r\n\x1a\n"
_HEAD = struct.Struct(">I4s")
_IHDR = struct.Struct(">IIBBBBB")
_KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_BEST_RATIO = 1_032  # of deflate: 258 bytes from 2 bits


def outline(data: bytes) -> Outline:
    """Raises `Unfit`. Of an animation (APNG), the picture that readers without animations show."""
    kept: list[bytes | memoryview] = [MAGIC]
    packed, upright, header = 0, exif.UPRIGHT, None
    for kind, chunk, content in _chunks(data):
        if header is None:
            header = _header(kind, content)
        elif kind == b"IHDR":
            raise broken("PNG", "a second IHDR")
        if kind in _KEPT:
            kept.append(chunk)
            packed += len(content) if kind == b"IDAT" else 0
        elif not kind[0] & 0x20:  # what we do not know and may not skip
            raise broken("PNG", f"a critical chunk {kind!r}")
        elif kind == b"eXIf":
            upright = exif.orientation(bytes(content))
    if header is None:
        raise cut_short("PNG", data)
    width, height, depth, bits = header
    if width * height * bits // 8 > packed * _BEST_RATIO:
        raise broken("PNG", f"{packed} bytes of data for {width}x{height} pixels")
    return Outline("PNG", width, height, upright, b"".join(kept), depth)


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview, memoryview]]:
    """Each chunk's type, the whole of it and its content, with the checksums of those that are used checked."""
    view, at = memoryview(data), len(MAGIC)
    for _ in range(MAX_PARTS):
        if at + 12 > len(data):
            raise cut_short("PNG", data)
        length, kind = _HEAD.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data):
            raise cut_short("PNG", data)
        if kind in _KEPT and zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(view[end - 4 : end]):
            raise broken("PNG", f"a wrong checksum of {kind.decode()}")
        yield kind, view[at:end], view[at + 8 : end - 4]
        if kind == b"IEND":
            if end < len(data):
                raise followed("PNG", len(data) - end)
            return
        at = end
    raise broken("PNG", f"more than {MAX_PARTS} chunks")


def _header(kind: bytes, content: memoryview) -> tuple[int, int, int, int]:
    """Width and height in pixels, bits of a sample, bits of a pixel."""
    if kind != b"IHDR" or len(content) != _IHDR.size:
        raise broken("PNG", "no IHDR of 13 bytes at its beginning")
    width, height, depth, colour, compression, method, interlace = _IHDR.unpack(content)
    if depth not in _DEPTHS.get(colour, ()) or compression or method or interlace > 1:
        raise broken("PNG", "an IHDR that PNG does not have")
    if not (1 <= width < 2**31 and 1 <= height < 2**31):
        raise broken("PNG", f"{width}x{height} pixels")
    return width, height, depth, depth * _SAMPLES[colour]
