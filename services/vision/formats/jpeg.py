"""Limits for the parts of a JPEG that Pillow and libjpeg do not limit (ITU-T T.81, annex B): metadata and scans.

Pillow joins all EXIF blocks, each time copying what it has, and parses them while it opens the file: 22 s for a file of
4 MB. So metadata is cut out, and the decoder sees the first picture and nothing after it.
"""

from __future__ import annotations

import re

from services.vision.formats.unfit import MAX_PARTS, broken, cut_short, followed

_MAGIC, _END, _SCAN = b"\xff\xd8\xff", b"\xff\xd9", b"\xff\xda"
_EOI, _SOS = 0xD9, 0xDA
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a length
_METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))  # APPn and comments, but not JFIF's and Adobe's
_MARKER = re.compile(rb"\xff+([^\xff])", re.DOTALL)  # any number of 0xff may fill the space before it
# Of the notes of a Samsung phone behind each picture (https://exiftool.org/TagNames/Samsung.html): their index, and
# their end.
_NOTES, _NOTES_END = b"SEFH", b"SEFT"
_XMP, _MOTION = b"http://ns.adobe.com/xap/1.0/\0", (b"MotionPhoto", b"MicroVideo")
_MAX_BOXES = 64  # of a video, at its top
_MAX_SCANS = 32  # each costs a walk over all pixels; encoders make about ten


def essence(data: bytes) -> tuple[bytes, bytes]:
    """(the first picture without metadata, its EXIF). Raises `Unfit`. After the picture may come zeros, and what
    cameras and phones write: further pictures of a Multi-Picture file (gain maps, depth), the video of a Motion Photo
    (https://developer.android.com/media/platform/motion-photo-format), or a Samsung phone's notes."""
    kept, metadata, several, moves, at = [data[:2]], b"", False, False, 2
    for _ in range(MAX_PARTS):
        begin, found = at, _MARKER.match(data, at)
        if not found:
            raise cut_short("JPEG", data) if not data[at:].strip(b"\xff") else broken("JPEG", f"no marker at byte {at}")
        marker, at = found[1][0], found.end()
        if marker == _SOS:
            end = _end_of_scans(data, at, several, moves)
            return b"".join((*kept, data[begin:end])), metadata
        if marker == _EOI:
            raise broken("JPEG", "no data")
        if marker in _ALONE:
            continue
        length = int.from_bytes(data[at : at + 2])
        content, at = data[at + 2 : at + length], at + length
        if at > len(data):
            raise cut_short("JPEG", data)
        if length < 2:
            raise broken("JPEG", f"a segment of {length} bytes")
        if marker not in _METADATA:
            kept.append(data[begin:at])
        elif marker == 0xE1 and content.startswith(b"Exif\0\0"):
            metadata = metadata or content
        several |= marker == 0xE2 and content.startswith(b"MPF\0")
        moves |= marker == 0xE1 and content.startswith(_XMP) and any(name in content for name in _MOTION)
    raise broken("JPEG", f"more than {MAX_PARTS} segments")


def _end_of_scans(data: bytes, first: int, several: bool, moves: bool) -> int:
    """The end of the first picture: in compressed data only 0 or a restart marker follows 0xff."""
    end = data.find(_END, first) + 2
    if end < 2:
        raise cut_short("JPEG", data)
    if data.count(_SCAN, first, end) >= _MAX_SCANS:
        raise broken("JPEG", f"more than {_MAX_SCANS} scans")
    more = data[end : _start_of_video(data, end) if moves else len(data)].strip(b"\0")
    pictures = several and more.startswith(_MAGIC) and more.endswith(_END)
    if more and not (pictures or (_NOTES in more and more.endswith(_NOTES_END))):
        raise followed("JPEG", len(data) - end)
    return end


def _start_of_video(data: bytes, first: int) -> int:
    """The start of the MP4 boxes that fill the end of the file (ISO/IEC 14496-12, 4.2); without any, the file's end."""
    start = at = data.find(b"ftyp", first) - 4
    for _ in range(_MAX_BOXES if start >= first else 0):
        size = int.from_bytes(data[at : at + 4])
        if size == 1:  # it stands behind the box's kind
            size = int.from_bytes(data[at + 8 : at + 16])
        if size < 8:
            break
        at += size
        if at == len(data):
            return start
    return len(data)
