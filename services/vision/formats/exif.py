"""Which way is up: the one thing that matters in EXIF (CIPA DC-008, tag 0x0112 of the first directory)."""

from __future__ import annotations

import struct

UPRIGHT = 1
_ORIENTATION, _SHORT = 0x0112, 3
_MAX_ENTRIES = 512


def orientation(exif: bytes) -> int:
    """1 to 8. Upright when the block does not say, or is broken: that is no reason to refuse a picture."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if not order:
        return UPRIGHT
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for number in range(min(count, _MAX_ENTRIES)):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, at + 2 + 12 * number)
            if tag == _ORIENTATION and kind == _SHORT:
                return value if 1 <= value <= 8 else UPRIGHT
    except struct.error:  # an offset that leads out of the block
        pass
    return UPRIGHT
