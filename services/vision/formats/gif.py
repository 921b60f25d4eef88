"""GIF, block by block (https://www.w3.org/Graphics/GIF/spec-gif89a.txt)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from services.vision.formats.outline import Outline, broken, cut_short, followed

MAGICS = (b"GIF87a", b"GIF89a")
_SCREEN = struct.Struct("<HHBBB")
_FRAME = struct.Struct("<HHHHB")
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9  # the extension that says which colour is transparent
_MAX_BLOCKS = 65_536  # a file of 4 MB has 16,000
_BEST_RATIO = 2_731  # pixels of a byte: a code of 12 bits stands for 4,096 at most


@dataclass(slots=True)
class _Reader:
    """Where a walk is, and how many blocks it has seen."""

    data: bytes
    at: int = 0
    blocks: int = 0

    def take(self, count: int) -> bytes:
        begin, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise cut_short("GIF", self.data)
        return self.data[begin : self.at]

    def table(self, flags: int) -> None:
        """Skip a table of colours, where `flags` say that there is one."""
        if flags & 0x80:
            self.take(3 << ((flags & 7) + 1))

    def blocks_of_data(self) -> int:
        """Skip a chain of blocks. Returns how many bytes of data they hold."""
        held = 0
        while size := self.take(1)[0]:
            self.blocks += 1
            if self.blocks > _MAX_BLOCKS:
                raise broken("GIF", f"more than {_MAX_BLOCKS} blocks")
            self.take(size)
            held += size
        return held


def outline(data: bytes) -> Outline:
    """Raises `Unfit`. Of an animation, the first frame; its other frames and all text are left out."""
    reader = _Reader(data, at=6)
    width, height, flags, _, _ = _SCREEN.unpack(reader.take(_SCREEN.size))
    reader.table(flags)
    kept, frame = [data[: reader.at]], None
    control = b""
    while (kind := reader.take(1)[0]) != _TRAILER:
        begin = reader.at - 1
        if kind == _EXTENSION:
            label = reader.take(1)[0]
            reader.blocks_of_data()
            if label == _GRAPHIC_CONTROL and frame is None:
                control = data[begin : reader.at]
        elif kind == _IMAGE:
            size = _image(reader)
            if frame is None:
                frame = size
                kept += [control, data[begin : reader.at]]
        else:
            raise broken("GIF", f"a block of kind {kind:02x} at byte {begin}")
    if frame is None:
        raise broken("GIF", "no picture")
    if reader.at < len(data):
        raise followed("GIF", len(data) - reader.at)
    return Outline("GIF", max(width, frame[0]), max(height, frame[1]), 1, b"".join((*kept, b";")))


def _image(reader: _Reader) -> tuple[int, int]:
    """Skip a frame. Returns its right and its lower edge: a canvas is as large as its first frame at least."""
    left, top, width, height, flags = _FRAME.unpack(reader.take(_FRAME.size))
    reader.table(flags)
    smallest_code = reader.take(1)[0]
    packed = reader.blocks_of_data()
    if not (width and height and 1 <= smallest_code <= 11):
        raise broken("GIF", f"a frame of {width}x{height} pixels in codes of {smallest_code} bits")
    if width * height > packed * _BEST_RATIO:
        raise broken("GIF", f"{packed} bytes of data for {width}x{height} pixels")
    return left + width, top + height
