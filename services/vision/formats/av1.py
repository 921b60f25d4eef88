"""How large a frame of AV1 data may be (https://aomediacodec.github.io/av1-spec/, sections 5.3 to 5.5)."""

from __future__ import annotations

from dataclasses import dataclass

from services.vision.formats.unfit import MAX_PARTS, broken

_SEQUENCE_HEADER = 1
_HEADER_BYTES = 64  # of a sequence header; what is read of it takes fewer


@dataclass(slots=True)
class _Bits:
    value: int
    left: int

    def take(self, count: int) -> int:
        self.left -= count
        if self.left < 0:
            raise broken("AVIF", "AV1 data that is cut short")
        return self.value >> self.left & (1 << count) - 1


def largest(data: bytes) -> int:
    """The most pixels of a frame, by all sequence headers in the data. Raises `Unfit` where there is none."""
    found, at = 0, 0
    for _ in range(MAX_PARTS):
        if at >= len(data):
            break
        head = data[at]
        kind, extended, sized = head >> 3 & 15, head >> 2 & 1, head >> 1 & 1
        at += 1 + extended
        size, at = _leb128(data, at) if sized else (len(data) - at, at)
        if at + size > len(data):
            raise broken("AVIF", "AV1 data that is cut short")
        if kind == _SEQUENCE_HEADER:
            found = max(found, _size(data[at : at + min(size, _HEADER_BYTES)]))
        at += size
    if at < len(data) or not found:
        raise broken("AVIF", "AV1 data without a header" if not found else f"more than {MAX_PARTS} parts of AV1 data")
    return found


def _size(header: bytes) -> int:
    bits = _Bits(int.from_bytes(header), 8 * len(header))
    bits.take(4)  # profile, still picture
    if bits.take(1):  # the short header of a still picture, in which a frame cannot have a size of its own
        bits.take(5)
        return _width(bits, *_fields(bits))[0]
    if bits.take(1):
        raise broken("AVIF", "a picture with a clock")
    delays = bits.take(1)
    for _ in range(bits.take(5) + 1):
        bits.take(12)
        if bits.take(5) > 7:
            bits.take(1)
        if delays and bits.take(1):
            bits.take(4)
    return _width(bits, *_fields(bits))[1]


def _fields(bits: _Bits) -> tuple[int, int]:
    return bits.take(4) + 1, bits.take(4) + 1


def _width(bits: _Bits, across: int, down: int) -> tuple[int, int]:
    """The pixels of the largest frame: as the header says, and as its fields of so many bits allow."""
    width, height = bits.take(across) + 1, bits.take(down) + 1
    return width * height, (1 << across) * (1 << down)


def _leb128(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits in each byte, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 8]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise broken("AVIF", "AV1 data with a broken length")
