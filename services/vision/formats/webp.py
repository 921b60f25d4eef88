"""WebP, chunk by chunk (RFC 9649)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from services.vision.formats import exif
from services.vision.formats.outline import MAX_PARTS, Outline, broken, cut_short, followed

_HEAD = struct.Struct("<4sI")
_ANIMATION = 0x02
_PICTURES = (b"VP8 ", b"VP8L")
_Size = tuple[int, int]  # width, height


def outline(data: bytes) -> Outline:
    """Raises `Unfit`. Of an animation, the canvas with its first frame."""
    canvas, pictures, upright, animated = None, [], exif.UPRIGHT, False
    for number, (kind, content) in enumerate(_chunks(data)):
        if kind == b"VP8X":
            if number or len(content) < 10:
                raise broken("WebP", "a misplaced VP8X")
            canvas, animated = (_24(content, 4) + 1, _24(content, 7) + 1), bool(content[0] & _ANIMATION)
        elif kind in _PICTURES:
            pictures.append(_size(kind, content))
        elif kind == b"ANMF":
            pictures.append(_frame(content))
        elif kind == b"EXIF":
            upright = exif.orientation(bytes(content))
    width, height = _agreed(canvas, pictures, animated)
    return Outline("WEBP", width, height, upright, data)


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    _, size = _HEAD.unpack_from(data)
    end = 8 + size + size % 2
    if end > len(data):
        raise cut_short("WebP", data)
    if end < len(data):
        raise followed("WebP", len(data) - end)
    yield from _within(memoryview(data)[12:end])


def _within(view: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    at = 0
    for _ in range(MAX_PARTS):
        if at == len(view):
            return
        if at + 8 > len(view):
            raise broken("WebP", "a chunk that is cut short")
        kind, length = _HEAD.unpack_from(view, at)
        end = at + 8 + length + length % 2
        if end > len(view):
            raise broken("WebP", "a chunk that is longer than the file")
        yield kind, view[at + 8 : at + 8 + length]
        at = end
    raise broken("WebP", f"more than {MAX_PARTS} chunks")


def _size(kind: bytes, content: memoryview) -> _Size:
    if kind == b"VP8L":
        bits = int.from_bytes(content[1:5], "little")
        if len(content) < 5 or content[0] != 0x2F or bits >> 29:
            raise broken("WebP", "a VP8L that has no header")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if len(content) < 10 or content[0] & 1 or bytes(content[3:6]) != b"\x9d\x01\x2a":
        raise broken("WebP", "a VP8 that is no key frame")
    if _24(content, 0) >> 5 > len(content) - 10:
        raise broken("WebP", "a VP8 whose first partition is cut short")
    width, height = struct.unpack_from("<HH", content, 6)
    return width & 0x3FFF, height & 0x3FFF


def _frame(content: memoryview) -> _Size:
    """The far corner of an animation's frame: as large as the canvas must be for it."""
    if len(content) < 16:
        raise broken("WebP", "a frame that is cut short")
    across, down, size = 2 * _24(content, 0), 2 * _24(content, 3), (_24(content, 6) + 1, _24(content, 9) + 1)
    sizes = [_size(kind, inner) for kind, inner in _within(content[16:]) if kind in _PICTURES]
    if sizes != [size]:
        raise broken("WebP", "a frame that is not as large as it says")
    return across + size[0], down + size[1]


def _agreed(canvas: _Size | None, pictures: list[_Size], animated: bool) -> _Size:
    """The one size that all parts of the file tell."""
    if not pictures:
        raise broken("WebP", "no picture")
    if animated and canvas:
        if any(width > canvas[0] or height > canvas[1] for width, height in pictures):
            raise broken("WebP", "a frame that is larger than its canvas")
        return canvas
    if len(pictures) > 1 or canvas not in (None, pictures[0]) or not all(pictures[0]):
        raise broken("WebP", "sizes that differ")
    return pictures[0]


def _24(content: memoryview, at: int) -> int:
    return int.from_bytes(content[at : at + 3], "little")
