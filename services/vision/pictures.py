"""Encoded pictures become arrays, in threads of their own.

Pillow decodes: it says when data is missing, knows every colour mode, reads a large JPEG at an eighth of its size when
no more is needed, and gives the interpreter's lock back while it works. (OpenCV takes 0.05 ms less for a picture of
64 pixels, twice as long for a JPEG of 2,000, and gives a grey rest for a file that is cut short.)

At most `threads` pictures are decoded at once, tenants in turn. That takes 8 bytes a pixel, and 16 of a WebP or AVIF,
whose decoders have the picture twice more: large ones are decoded one at a time. So the memory is bounded by
`(threads + 1) * max_pixels * 8` bytes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ImageFile import ImageFile

from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate
from services.runtime.policy.fair_thread import FairThread
from services.vision import metrics
from services.vision.errors import ImageRefused
from services.vision.formats import MAX_SIDE, Unfit, open_picture, orientation
from services.vision.manifest import INTERPOLATIONS, Channels, Preprocessing, Size

Array = NDArray[np.generic]
_BACKGROUND = (255, 255, 255)  # behind what is transparent, as on a page
_PADDING = (0, 0, 0)
_GAP = 3.0  # from which on Pillow's shortcut for shrinking makes no difference that can be seen
_FILTERS = {name: Image.Resampling[name.upper()] for name in INTERPOLATIONS}
_Box = tuple[float, float, float, float]  # left, top, right, bottom
_DOUBLE, _LARGE = frozenset({"WEBP", "AVIF"}), 4  # how many of them have as many pixels as one may have
_alone = Lock()
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """An item for a model, and how long it took to make, with the wait for a thread."""

    array: Array
    seconds: float = 0.0


class Pictures:
    """Prepares pictures for models. Used on one event loop."""

    def __init__(self, threads: int, max_image_bytes: int, max_pixels: int):
        self._max_image_bytes, self._max_pixels = max_image_bytes, max_pixels
        self._threads = FairThread("decode", sys.maxsize, threads=threads)  # models limit what waits
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS or 0, max_pixels)  # Pillow's own, while it opens a file

    def prepare(
        self, data: bytes, field: str, wanted: Preprocessing, dtype: str, deadline: Deadline, tenant: str = ""
    ) -> asyncio.Future[Prepared]:
        """Starts it for `tenant`; the future is `wanted`'s array, 3 x height x width. Raises `ImageRefused`, which
        names `field`, or `TooLate`. A picture whose future is cancelled, or whose time is over, before its turn is not
        decoded."""
        began = time.perf_counter()

        def work() -> Prepared:
            if not deadline.remaining():
                raise TooLate("the deadline passed before the picture was decoded")
            array = self._array(data, field, wanted, dtype)
            seconds = time.perf_counter() - began
            metrics.PREPROCESS_SECONDS.observe(seconds)
            return Prepared(array, seconds)

        return asyncio.ensure_future(self._threads.run(tenant, work))

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _array(self, data: bytes, field: str, wanted: Preprocessing, dtype: str) -> Array:
        try:
            if len(data) > self._max_image_bytes:
                raise Unfit("bytes", f"at most {self._max_image_bytes} bytes", f"{len(data)} bytes")
            return normalize(fit(decode(data, self._max_pixels, max(wanted.resized)), wanted), wanted, dtype)
        except Unfit as problem:
            metrics.REFUSED.labels(problem.why).inc()
            refusal = ImageRefused(field, problem.limit, problem.got)
        # Not in the handler: the refusal would hold the decoder's error, that its frames, and they what was decoded.
        raise refusal


def decode(data: bytes, max_pixels: int, needed: int = MAX_SIDE) -> Image.Image:
    """The picture in RGB or RGBA, the right way up. A JPEG may come smaller than it is, with both sides at least twice
    `needed` pixels. Raises `Unfit`, and before any pixel is decoded where the file's structure shows it."""
    with open_picture(data, max_pixels) as file:
        large = file.format in _DOUBLE and file.width * file.height * _LARGE > max_pixels
        try:
            with _alone if large else nullcontext():
                picture = _load(file, needed)
        except (Unfit, MemoryError):
            raise
        except Exception as error:  # a decoder has many ways to say that it does not like what it reads
            raise Unfit("data", f"a {file.format} that can be decoded", type(error).__name__) from None
        turn = _TURNS.get(orientation(file.info.get("exif", b"")))
    return picture if turn is None else picture.transpose(turn)


def _load(file: ImageFile, needed: int) -> Image.Image:
    deep = file.format == "PNG" and "16B" in str(file.tile[0].args)
    file.draft("RGB", (2 * needed, 2 * needed))
    file.load()
    if deep:
        file.info.pop("transparency", None)  # in 16 bits, which none of the samples has any more
        if file.mode.startswith("I"):
            return Image.fromarray((np.asarray(file) >> 8).astype(np.uint8)).convert("RGB")
    mode = "RGBA" if file.has_transparency_data else "RGB"
    return file if file.mode == mode else file.convert(mode)


def fit(picture: Image.Image, wanted: Preprocessing) -> Image.Image:
    """The picture in RGB at the size that is wanted."""
    resample = _FILTERS[wanted.interpolation]
    if wanted.fit == "pad":
        return _padded(picture, wanted.resized, resample)
    height, width = wanted.size
    if wanted.fit == "crop":
        return _resize(picture, (width, height), _middle(picture, width / height), resample)
    box = _centre(picture, _scaled(picture, wanted.resize), (width, height))
    return _resize(picture, (width, height), box, resample)


def _padded(picture: Image.Image, wanted: Size, resample: Image.Resampling) -> Image.Image:
    height, width = wanted
    scale = min(width / picture.width, height / picture.height)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    canvas = Image.new("RGB", (width, height), _PADDING)
    canvas.paste(_resize(picture, size, None, resample), ((width - size[0]) // 2, (height - size[1]) // 2))
    return canvas


def _scaled(picture: Image.Image, resize: int | Size) -> tuple[int, int]:
    """Width and height after the resize. The longer side is rounded down, as torchvision does it."""
    if not isinstance(resize, int):
        return resize[1], resize[0]
    if picture.width <= picture.height:
        return resize, resize * picture.height // picture.width
    return resize * picture.width // picture.height, resize


def _centre(picture: Image.Image, scaled: tuple[int, int], size: tuple[int, int]) -> _Box | None:
    """The box that becomes the centre crop `size` once the picture has the size `scaled`. Resizing this
    box alone gives the same pixels as resizing the whole and cropping: the filter still sees the pixels around it."""
    if scaled == size:
        return None
    left, top = (round((there - wanted) / 2) for there, wanted in zip(scaled, size, strict=True))
    across, down = picture.width / scaled[0], picture.height / scaled[1]
    right, bottom = (left + size[0]) * across, (top + size[1]) * down
    return left * across, top * down, min(right, picture.width), min(bottom, picture.height)


def _middle(picture: Image.Image, aspect: float) -> _Box:
    """The largest box of an aspect in the middle of the picture."""
    width, height = min(picture.width, picture.height * aspect), min(picture.height, picture.width / aspect)
    left, top = (picture.width - width) / 2, (picture.height - height) / 2
    return left, top, left + width, top + height


def _resize(picture: Image.Image, size: tuple[int, int], box: _Box | None, resample: Image.Resampling) -> Image.Image:
    if picture.size != size or box:
        picture = picture.resize(size, resample, box, _GAP)
    if picture.mode == "RGB":
        return picture
    page = Image.new("RGB", size, _BACKGROUND)
    page.paste(picture, mask=picture.getchannel("A"))
    return page


def normalize(picture: Image.Image, wanted: Preprocessing, dtype: str) -> Array:
    """Values as the network was trained on, channels first, contiguous."""
    scale, shift = _affine(wanted.mean, wanted.std)
    array = np.empty((3, picture.height, picture.width), np.float32)
    np.multiply(np.asarray(picture).transpose(2, 0, 1), scale, out=array)
    array -= shift
    return array.astype(dtype, copy=False)


@lru_cache(maxsize=64)
def _affine(mean: Channels, std: Channels) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The factor, and the number to subtract after it; one for each channel."""
    means, deviations = (np.array(values, np.float64)[:, None, None] for values in (mean, std))
    return (1 / (255 * deviations)).astype(np.float32), (means / deviations).astype(np.float32)
