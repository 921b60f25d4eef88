"""Encoded pictures are opened by Pillow, which reads no more than the header then, and guarded where Pillow has no
limits of its own: the steps of a walk through a file, metadata and scans of a JPEG (`jpeg`), AV1 data that are larger
than their picture (`avif`).
"""

from __future__ import annotations

import io
import struct
import warnings

from PIL import AvifImagePlugin, Image, PngImagePlugin
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from services.vision.formats import avif, jpeg
from services.vision.formats.unfit import MAX_PARTS, Unfit, broken, cut_short, followed

__all__ = ["FORMATS", "MAX_SIDE", "Unfit", "open_picture", "orientation"]

FORMATS = "a PNG, JPEG, WebP, GIF or AVIF"
MAX_SIDE = 65_535  # JPEG's; the filter that resizes takes memory for each pixel of a side
# The most pixels a byte stands for: 64 of a JPEG take a bit; deflate makes 258 bytes, of 8 pixels each, from 2 bits; a
# GIF's code of 12 bits is 4,096.
_RATIOS = {"JPEG": 512, "PNG": 8 * 1_032, "GIF": 2_731}
# Pictures that people send and no decoder here reads: (position, bytes there, name).
_OTHERS = (
    (4, b"ftyphe", "HEIC"),
    (4, b"ftypmif1", "HEIC"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"BM", "BMP"),
    (0, b"<svg", "SVG"),
    (0, b"%PDF", "PDF"),
)
_IEND = b"\0\0\0\0IEND\xaeB`\x82"  # with its length and its checksum
_UPRIGHT = 1
_ORIENTATION, _SHORT = 0x0112, 3  # of EXIF: a tag of the first directory, and its type (CIPA DC-008)
_MAX_ENTRIES = 512
AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # of one picture: several are decoded at once
PngImagePlugin.MAX_TEXT_MEMORY = 4 * PngImagePlugin.MAX_TEXT_CHUNK  # 4 MiB of texts, unpacked
warnings.simplefilter("error", Image.DecompressionBombWarning)


class _Steps(io.BytesIO):
    """A file that may be read in so many steps: Pillow walks through chunks, segments and blocks in Python, several
    reads for each, and holds the interpreter's lock meanwhile."""

    def __init__(self, kind: str, data: bytes, steps: int = 16_384):
        super().__init__(data)
        self._kind, self._left, self.furthest = kind, steps, 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Raises `Unfit` when there have been too many."""
        self._left -= 1
        if self._left < 0:
            raise broken(self._kind, "one of too many parts")
        got = super().read(size)
        self.furthest = max(self.furthest, self.tell())
        return got


def open_picture(data: bytes, max_pixels: int) -> ImageFile:
    """The first picture of a whole file, of which no pixel is decoded yet. The content decides, not a name. Raises
    `Unfit`. Its EXIF is in `info`, once it has been loaded."""
    kind, limit = _kind(data), f"at most {max_pixels} pixels, {MAX_SIDE} to a side"
    try:
        file = _OPENERS[kind](data)
    except (Unfit, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unfit("pixels", limit, f"more than {Image.MAX_IMAGE_PIXELS}") from None
    except Exception as error:  # Pillow has many ways to say that it does not like what it reads
        raise broken(kind, f"one that is damaged ({type(error).__name__})") from None
    if file.width * file.height > max_pixels or max(file.size) > MAX_SIDE:
        raise Unfit("pixels", limit, f"{file.width}x{file.height}")
    if kind in _RATIOS and file.width * file.height > len(data) * _RATIOS[kind]:
        raise broken(kind, f"{len(data)} bytes for {file.width}x{file.height} pixels")
    return file


def _kind(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if avif.is_avif(data):
        return "AVIF"
    if other := next((name for at, magic, name in _OTHERS if data.startswith(magic, at)), ""):
        raise Unfit("format", FORMATS, f"{other}; convert it to JPEG or PNG")
    raise Unfit("format", FORMATS, f"{len(data)} bytes that begin with {data[:8].hex() or 'nothing'}")


def _png(data: bytes) -> ImageFile:
    checked = _Steps("PNG", data)
    PngImageFile(checked).verify()  # all checksums up to that of IEND
    if (more := len(data) - checked.furthest - 4) > 0:
        raise followed("PNG", more)
    if not data.endswith(_IEND):
        raise broken("PNG", "a damaged IEND")
    return PngImageFile(_Steps("PNG", data))


def _jpeg(data: bytes) -> ImageFile:
    essence, metadata = jpeg.essence(data)
    file = JpegImageFile(_Steps("JPEG", essence))
    file.info["exif"] = metadata
    return file


def _webp(data: bytes) -> ImageFile:
    end = _chunk_end(data, 0)
    if end > len(data):
        raise cut_short("WebP", data)
    if end < len(data):
        raise followed("WebP", len(data) - end)
    at = 12
    for _ in range(MAX_PARTS):  # libwebp ignores what follows the picture and is no chunk
        if at >= end:
            break
        at = _chunk_end(data, at)
    if at != end:
        raise broken("WebP", f"something else than {MAX_PARTS} whole chunks at most")
    return WebPImageFile(_Steps("WebP", data))


def _chunk_end(data: bytes, at: int) -> int:
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    return at + 8 + size + size % 2


def _gif(data: bytes) -> ImageFile:
    stream = _Steps("GIF", data, 16_384 + len(data) // 120)  # an honest one takes a step for 128 bytes
    file = GifImageFile(stream)
    file.n_frames  # noqa: B018  # walks to the file's end
    if stream.furthest < len(data):
        raise followed("GIF", len(data) - stream.furthest)
    if not data.endswith(b";"):
        raise cut_short("GIF", data)
    return file


def _avif(data: bytes) -> ImageFile:
    return AvifImagePlugin.AvifImageFile(_Steps("AVIF", avif.essence(data)))


_OPENERS = {"PNG": _png, "JPEG": _jpeg, "WEBP": _webp, "GIF": _gif, "AVIF": _avif}


def orientation(exif: bytes) -> int:
    """Which way is up by the EXIF, 1 to 8. Upright when the block does not say, or is broken: that is no reason to
    refuse a picture."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if not order:
        return _UPRIGHT
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for number in range(min(count, _MAX_ENTRIES)):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, at + 2 + 12 * number)
            if tag == _ORIENTATION and kind == _SHORT:
                return value if 1 <= value <= 8 else _UPRIGHT
    except struct.error:  # an offset that leads out of the block
        pass
    return _UPRIGHT
