"""Picture files for tests: valid ones in every colour mode, and malicious ones."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

KINDS = ("PNG", "JPEG", "WEBP", "GIF", "AVIF")


def gradient(width: int = 48, height: int = 32) -> Image.Image:
    """Red grows to the right, green downwards, blue is 100."""
    pixels = np.full((height, width, 3), 100, np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width).astype(np.uint8)[None, :]
    pixels[..., 1] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    return Image.fromarray(pixels)


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """The picture as a file, nearly without loss."""
    if kind == "WEBP":
        options = {"lossless": True, **options}
    if kind == "AVIF":
        options = {"quality": 100, "subsampling": "4:4:4", "speed": 10, **options}
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0, **options}
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    """A PNG's, with its checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, data: bytes, depth: int = 8, colour: int = 2, extra: bytes = b"") -> bytes:
    """A PNG of any header and any data. `extra`: chunks before the data."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def interlaced(picture: Image.Image) -> bytes:
    """An RGB picture as a PNG whose rows come in seven passes (Adam7)."""
    pixels, raw = np.asarray(picture), b""
    for x, y, across, down in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)):
        raw += b"".join(b"\0" + row.tobytes() for row in pixels[y::down, x::across] if row.size)
    raw += b"".join(b"\0" + row.tobytes() for row in pixels[1::2])
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 1)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def with_orientation(picture: Image.Image, kind: str, orientation: int) -> bytes:
    """A file that says which way is up."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(picture, kind, exif=exif)


def segment(marker: int, content: bytes) -> bytes:
    """A JPEG's."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG with one more segment at its beginning."""
    return jpeg[:2] + segment(marker, content) + jpeg[2:]


def size_of_jpeg(jpeg: bytes, width: int, height: int) -> bytes:
    """The JPEG, with another size in its header."""
    at = jpeg.index(b"\xff\xc0")
    return jpeg[: at + 5] + struct.pack(">HH", height, width) + jpeg[at + 9 :]


def size_of_avif(avif: bytes, width: int, height: int) -> bytes:
    """The AVIF, with another size in its boxes than in its AV1 data."""
    at = avif.index(b"ispe") + 8
    return avif[:at] + struct.pack(">II", width, height) + avif[at + 8 :]
