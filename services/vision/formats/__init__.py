"""What an encoded picture says about itself, read before one pixel is decoded.

Only whole files of one format pass: the walkers follow a file from its first byte to its last. So what is cut short,
what lies about its size and what has something else glued on (a ZIP, a page of HTML) is refused by its structure, at
the cost of a few microseconds. Metadata is left out of what a decoder gets to see: profiles, comments and thumbnails
have been the way into decoders more often than pixels were.
"""

from __future__ import annotations

from services.vision.formats import jpeg, png, webp
from services.vision.formats.outline import Outline, Unfit

__all__ = ["Outline", "Unfit", "inspect"]


def inspect(data: bytes) -> Outline:
    """The outline of a whole PNG, JPEG or WebP. The content decides, not a name. Raises `Unfit`."""
    if data.startswith(png.MAGIC):
        return png.outline(data)
    if data.startswith(jpeg.MAGIC):
        return jpeg.outline(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return webp.outline(data)
    raise Unfit("format", "a PNG, JPEG or WebP", f"{len(data)} bytes that begin with {data[:8].hex() or 'nothing'}")
