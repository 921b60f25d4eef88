"""What an encoded picture says about itself, read before one pixel is decoded.

Only whole files of one format pass: the walkers follow a file from its first byte to its last. So what is cut short,
what lies about its size and what has something else glued on (a ZIP, a page of HTML) is refused by its structure, at
the cost of a few microseconds. Metadata is left out of what a decoder gets to see: profiles, comments and thumbnails
have been the way into decoders more often than pixels were.
"""

from __future__ import annotations

from services.vision.formats import avif, gif, jpeg, png, webp
from services.vision.formats.outline import Outline, Unfit

__all__ = ["FORMATS", "Outline", "Unfit", "inspect"]

FORMATS = "a PNG, JPEG, WebP, GIF or AVIF"


def inspect(data: bytes) -> Outline:
    """The outline of a whole PNG, JPEG, WebP, GIF or AVIF. The content decides, not a name. Raises `Unfit`."""
    if data.startswith(png.MAGIC):
        return png.outline(data)
    if data.startswith(jpeg.MAGIC):
        return jpeg.outline(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return webp.outline(data)
    if data.startswith(gif.MAGICS):
        return gif.outline(data)
    if avif.is_avif(data):
        return avif.outline(data)
    raise Unfit("format", FORMATS, f"{len(data)} bytes that begin with {data[:8].hex() or 'nothing'}")
