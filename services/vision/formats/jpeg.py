"""JPEG, segment by segment (ITU-T T.81, annex B)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from services.vision.formats import exif
from services.vision.formats.outline import MAX_PARTS, Outline, broken, cut_short, followed

MAGIC = b"\xff\xd8\xff"
_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_SEQUENTIAL, _PROGRESSIVE = (0xC0, 0xC1), 0xC2
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}  # lossless, hierarchical, arithmetic
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a length
_DROPPED = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))  # APPn and comments, but not JFIF's and Adobe's
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)  # any number of 0xff may fill the space before it
_NEXT_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # after a scan's data
_MAX_SCANS = 32  # each costs a walk over all pixels; encoders make about ten
_MAX_FOLLOWING = 8


@dataclass(slots=True)
class _Frame:
    """What a walk finds. `blocks` of 8x8 samples; `packed` bytes of compressed data."""

    width: int = 0
    height: int = 0
    blocks: int = 0
    progressive: bool = False
    scans: int = 0
    packed: int = 0
    orientation: int = exif.UPRIGHT
    several: bool = False  # other pictures may follow it in the file (CIPA DC-007, Multi-Picture Format)
    dropped: list[tuple[int, int]] = field(default_factory=list)


def outline(data: bytes) -> Outline:
    """Raises `Unfit`. After the picture may come zeros, and the further pictures of a Multi-Picture file: cameras and
    phones write them (gain maps, depth)."""
    frame = _Frame()
    end = _walk(data, 0, frame)
    if frame.several:
        after = end
        for _ in range(_MAX_FOLLOWING):
            if not data.startswith(MAGIC, after):
                break
            after = _skip_zeros(data, _walk(data, after, _Frame()))
    else:
        after = end
    if _skip_zeros(data, after) < len(data):
        raise followed("JPEG", len(data) - after)
    _check_data(frame)
    return Outline("JPEG", frame.width, frame.height, frame.orientation, _without(data, frame.dropped, end))


def _skip_zeros(data: bytes, at: int) -> int:
    return len(data) - len(data[at:].lstrip(b"\0")) if data[at : at + 1] == b"\0" else at


def _walk(data: bytes, start: int, frame: _Frame) -> int:
    """Follow one picture from `start`. Returns where it ends."""
    at = start + 2
    for _ in range(MAX_PARTS):
        begin, found = at, _MARKER.match(data, at)
        if not found:
            raise cut_short("JPEG", data) if not data[at:].strip(b"\xff") else broken("JPEG", f"no marker at byte {at}")
        marker, at = data[found.end() - 1], found.end()
        if marker == _EOI:
            return at
        if marker in _ALONE:
            continue
        at = _segment(data, begin, at, marker, frame)
    raise broken("JPEG", f"more than {MAX_PARTS} segments")


def _segment(data: bytes, begin: int, at: int, marker: int, frame: _Frame) -> int:
    """Look into the segment whose length is at `at`. Returns where it ends, with the data of a scan."""
    if marker in (0x00, _SOI):
        raise broken("JPEG", f"a marker {marker:02x} at byte {begin}")
    length = int.from_bytes(data[at : at + 2])
    end = at + length
    if at + 2 > len(data) or end > len(data):
        raise cut_short("JPEG", data)
    if length < 2:
        raise broken("JPEG", f"a segment of {length} bytes")
    content = data[at + 2 : min(end, at + 2 + 65_536)]
    if marker in _DROPPED:
        frame.dropped.append((begin, end))
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            frame.orientation = exif.orientation(content)
        frame.several |= marker == 0xE2 and content.startswith(b"MPF\0")
    elif marker in _OTHER_FRAMES:
        raise broken("JPEG", f"a frame of kind {marker:02x}, neither baseline nor progressive")
    elif marker in _SEQUENTIAL or marker == _PROGRESSIVE:
        _start_of_frame(content, marker == _PROGRESSIVE, frame)
    elif marker == _SOS:
        return _scan(data, end, frame)
    return end


def _start_of_frame(content: bytes, progressive: bool, frame: _Frame) -> None:
    if frame.width:
        raise broken("JPEG", "a second frame")
    if len(content) < 6 or len(content) != 6 + 3 * content[5] or content[5] not in (1, 3, 4):
        raise broken("JPEG", "a frame that is not of 1, 3 or 4 components")
    height, width = int.from_bytes(content[1:3]), int.from_bytes(content[3:5])
    if content[0] != 8 or not width or not height:
        raise broken("JPEG", f"{width}x{height} pixels of {content[0]} bits")
    factors = [divmod(content[7 + 3 * number], 16) for number in range(content[5])]
    if any(not (1 <= across <= 4 and 1 <= down <= 4) for across, down in factors):
        raise broken("JPEG", "a sampling factor that is not 1 to 4")
    frame.width, frame.height, frame.progressive = width, height, progressive
    most_across, most_down = max(across for across, _ in factors), max(down for _, down in factors)
    for across, down in factors:
        frame.blocks += -(-width * across // (8 * most_across)) * -(-height * down // (8 * most_down))


def _scan(data: bytes, at: int, frame: _Frame) -> int:
    frame.scans += 1
    if not frame.width:
        raise broken("JPEG", "a scan before its frame")
    if frame.scans > _MAX_SCANS:
        raise broken("JPEG", f"more than {_MAX_SCANS} scans")
    found = _NEXT_MARKER.search(data, at)
    if not found:
        raise cut_short("JPEG", data)
    frame.packed += found.start() - at
    return found.start()


def _check_data(frame: _Frame) -> None:
    """A block takes a bit for its first coefficient, and in a sequential JPEG one for its end."""
    if not frame.scans:
        raise broken("JPEG", "no data")
    if frame.blocks * (1 if frame.progressive else 2) > frame.packed * 8:
        raise broken("JPEG", f"{frame.packed} bytes of data for {frame.width}x{frame.height} pixels")


def _without(data: bytes, dropped: list[tuple[int, int]], end: int) -> bytes:
    kept, at = [], 0
    view = memoryview(data)
    for begin, until in dropped:
        kept.append(view[at:begin])
        at = until
    return b"".join((*kept, view[at:end])) if dropped or end < len(data) else data
