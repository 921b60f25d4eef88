"""Pictures become the right arrays, or are refused."""

from __future__ import annotations

import asyncio
import resource
import struct
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.ImageFile import ImageFile

from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate
from services.vision import pictures as picture_module
from services.vision.errors import ImageRefused
from services.vision.formats import Unfit, open_picture
from services.vision.manifest import Preprocessing
from services.vision.pictures import Pictures, decode, fit, normalize
from tests.conftest import REPOSITORY
from tests.unit.vision.files import KINDS, encoded, gradient, interlaced, png, size_of_avif, with_orientation

MAX_PIXELS = 1_000_000
SMALL = Preprocessing(resize=(16, 16))
SIDE = 64  # of pictures that are large where SIDE * SIDE pixels are the most
_ABOUT_THEM = (".md", ".json")
PHOTOGRAPHS = sorted(each for each in (REPOSITORY / "tests/photographs").iterdir() if each.suffix not in _ABOUT_THEM)
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
async def pictures() -> AsyncIterator[Pictures]:
    made = Pictures(2, 100_000, MAX_PIXELS)
    yield made
    made.close()


def pixels(data: bytes, needed: int = 65_535) -> np.ndarray:
    """As they are on a white page."""
    picture = decode(data, MAX_PIXELS, needed)
    return np.asarray(fit(picture, Preprocessing(resize=(picture.height, picture.width)))).astype(int)


@each_kind
def test_a_picture_comes_out_as_it_went_in(kind: str) -> None:
    picture = gradient().quantize(256).convert("RGB") if kind == "GIF" else gradient()  # a GIF has 256 colours
    assert np.abs(pixels(encoded(picture, kind)) - np.asarray(picture)).max() <= 8


@pytest.mark.parametrize("file", PHOTOGRAPHS, ids=lambda file: file.name)
def test_photographs_of_all_formats_are_read(file: Path) -> None:
    assert 200 < max(decode(file.read_bytes(), MAX_PIXELS).size) <= 512


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_colour_mode_of_png_is_understood(mode: str) -> None:
    grey = Image.new("L", (8, 8), 200)
    if mode == "I;16":
        data = encoded(Image.fromarray(np.full((8, 8), 200 << 8, np.uint16)), "PNG")
    else:
        data = encoded(grey.point(lambda _: 255).convert("1") if mode == "1" else grey.convert(mode), "PNG")
    assert (pixels(data) == (255 if mode == "1" else 200)).all()


@pytest.mark.parametrize("colour", [2, 6])
def test_sixteen_bits_of_colour_keep_their_upper_half(colour: int) -> None:
    pixel = struct.pack(">HHH", 200 << 8, 100 << 8, 50 << 8) + (b"\xff\xff" if colour == 6 else b"")
    data = png(4, 4, zlib.compress((b"\0" + pixel * 4) * 4), depth=16, colour=colour)
    assert (pixels(data) == (200, 100, 50)).all()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "AVIF"])
def test_transparent_pixels_are_white(kind: str) -> None:
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    clear.paste((0, 0, 255, 255), (0, 0, 4, 8))
    seen = pixels(encoded(clear, kind, **({"exact": True} if kind == "WEBP" else {})))
    assert np.abs(seen[:, :4] - (0, 0, 255)).max() <= 2
    assert (seen[:, 4:] == 255).all()


def test_the_transparent_colour_of_a_palette_is_white() -> None:
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.paste(1, (0, 0, 4, 8))
    seen = pixels(encoded(palette, "PNG", transparency=0))
    assert (seen[:, :4] == (0, 255, 0)).all()
    assert (seen[:, 4:] == 255).all()


def test_a_jpeg_for_print_has_the_colours_it_has_on_a_screen() -> None:
    seen = pixels(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    assert np.abs(seen - (255, 0, 0)).max() < 10


def test_a_grey_and_a_progressive_jpeg_are_understood() -> None:
    assert (pixels(encoded(Image.new("L", (16, 16), 77), "JPEG")) == 77).all()
    assert np.abs(pixels(encoded(gradient(), "JPEG", progressive=True)) - np.asarray(gradient())).max() <= 8


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_the_right_way_up(kind: str, orientation: int) -> None:
    upright = gradient()
    undo = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270, 5: Image.Transpose.TRANSPOSE}
    undo |= {7: Image.Transpose.TRANSVERSE, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180}
    undo |= {4: Image.Transpose.FLIP_TOP_BOTTOM}
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    assert np.abs(pixels(with_orientation(stored, kind, orientation)) - np.asarray(upright)).max() <= 12


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (48, 32), (17, 9)])
def test_a_png_in_seven_passes_is_understood(size: tuple[int, int]) -> None:
    assert (pixels(interlaced(gradient(*size))) == np.asarray(gradient(*size))).all()


@pytest.mark.parametrize("kind", ["WEBP", "PNG", "GIF", "AVIF"])
def test_the_first_frame_of_an_animation_is_used(kind: str) -> None:
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "blue", "green")]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=40)
    assert open_picture(data, MAX_PIXELS).size == (20, 10)
    assert np.abs(pixels(data) - (255, 0, 0)).max() <= (2 if kind == "AVIF" else 0)


def test_the_canvas_of_a_gif_grows_with_its_first_frame_and_what_it_leaves_free_is_black() -> None:
    small = encoded(Image.new("RGB", (8, 8), "red"), "GIF")
    wider = small[:6] + struct.pack("<HH", 4, 16) + small[10:]
    assert decode(wider, MAX_PIXELS).size == (8, 16)


def test_a_large_jpeg_is_decoded_no_larger_than_needed() -> None:
    photo = encoded(gradient(960, 640), "JPEG")
    assert decode(photo, MAX_PIXELS, 64).size == (240, 160)
    whole = normalize(fit(decode(photo, MAX_PIXELS), SMALL), SMALL, "float32")
    shortened = normalize(fit(decode(photo, MAX_PIXELS, 16), SMALL), SMALL, "float32")
    assert np.abs(whole - shortened).max() < 0.03


def test_fits_squeeze_cut_or_pad() -> None:
    wide = Image.new("RGB", (40, 20), "red")
    wide.paste("blue", (10, 0, 30, 20))
    wanted = Preprocessing(resize=(20, 20))
    squeezed, cut, padded = (
        np.asarray(fit(wide, wanted.model_copy(update={"fit": way}))) for way in ("stretch", "crop", "pad")
    )
    assert (squeezed[10, 1] == (255, 0, 0)).all()
    assert (squeezed[10, 10] == (0, 0, 255)).all()
    assert (cut == (0, 0, 255)).all()
    assert (padded[:5] == 0).all()
    assert (padded[10, 1] == (255, 0, 0)).all()


def test_values_are_normalized_by_channel_with_channels_first() -> None:
    wanted = Preprocessing(resize=(2, 3), mean=(0.5, 0.25, 0), std=(0.5, 0.25, 2))
    array = normalize(Image.new("RGB", (3, 2), (255, 0, 51)), wanted, "float32")
    assert array.shape == (3, 2, 3)
    assert array.dtype == np.float32
    assert array[:, 0, 0] == pytest.approx([1, -1, 0.1])
    assert array.flags.c_contiguous
    assert normalize(Image.new("RGB", (3, 2)), wanted, "float16").dtype == np.float16


@pytest.mark.parametrize("size", [(1, 1), (65_000, 1), (1, 65_000), (3, 2)])
@pytest.mark.parametrize("way", ["stretch", "crop", "pad"])
@each_kind
def test_odd_sizes_fit_too(size: tuple[int, int], way: str, kind: str) -> None:
    if kind in ("WEBP", "AVIF") and max(size) > 16_383:  # the formats' own limits
        size = (min(size[0], 16_383), min(size[1], 16_383))
    data = encoded(Image.new("RGB", size, (0, 200, 0)), kind)
    wanted = Preprocessing(resize=(16, 16), fit=way)
    array = normalize(fit(decode(data, MAX_PIXELS, 16), wanted), wanted, "float32")
    assert array.shape == (3, 16, 16)
    assert array[1].max() == pytest.approx(200 / 255, abs=0.01)


async def test_a_refusal_names_the_image_the_limit_and_the_value(pictures: Pictures) -> None:
    for data, message in (
        (b"", r"images\[3\]: a PNG, JPEG, WebP, GIF or AVIF, got 0 bytes that begin with nothing"),
        (b"x" * 100_001, r"images\[3\]: at most 100000 bytes, got 100001 bytes"),
        (png(1_001, 1_000, zlib.compress(b"\0" * 3_004_000)), r"at most 1000000 pixels, 65535 to a side, got 1001x"),
        (encoded(gradient(), "JPEG")[:-20], r"images\[3\]: a whole JPEG, got one that is cut short after \d+ bytes"),
    ):
        with pytest.raises(ImageRefused, match=message) as refusal:
            await pictures.prepare(data, "images[3]", SMALL, "float32", Deadline.never())
        assert refusal.value.metadata["field"] == "images[3]"


async def test_a_refusal_keeps_nothing_of_what_was_decoded(pictures: Pictures) -> None:
    short = png(300, 300, zlib.compress(b"\0" * 5_000))
    with pytest.raises(ImageRefused) as refusal:
        await pictures.prepare(short, "images[0]", SMALL, "float32", Deadline.never())
    assert refusal.value.__context__ is None  # the decoder's error, whose frames hold the pixels


async def test_a_late_picture_is_not_decoded(pictures: Pictures) -> None:
    with pytest.raises(TooLate):
        await pictures.prepare(b"", "images[0]", SMALL, "float32", Deadline.after(0))


async def test_a_picture_whose_request_was_cancelled_is_not_decoded() -> None:
    pictures = Pictures(1, 100_000_000, 100_000_000)
    large = encoded(Image.new("RGB", (3_000, 3_000)), "PNG")
    running = pictures.prepare(large, "images[0]", SMALL, "float32", Deadline.never())
    waiting = pictures.prepare(large, "images[1]", SMALL, "float32", Deadline.never())
    waiting.cancel()
    assert (await running).array.shape == (3, 16, 16)
    await asyncio.to_thread(pictures.close)
    assert waiting.cancelled()


async def test_tenants_take_turns_at_decoding() -> None:
    pictures, ended = Pictures(1, 100_000_000, 100_000_000), list[str]()
    large, small = (encoded(Image.new("RGB", (side, side)), "PNG") for side in (1_000, 16))
    asked = [("flood", large)] * 8 + [("other", small)]
    futures = [pictures.prepare(data, "images", SMALL, "float32", Deadline.never(), who) for who, data in asked]
    for (who, _), future in zip(asked, futures, strict=True):
        future.add_done_callback(lambda _, who=who: ended.append(who))
    await asyncio.gather(*futures)
    assert ended.index("other") <= 2
    await asyncio.to_thread(pictures.close)


@pytest.mark.parametrize(
    "bomb",
    [
        # too little data, though enough bytes for the pixels
        png(1_000, 1_000, zlib.compress(b"\0" * 5_000)),
        png(60_000, 60_000, zlib.compress(b"\0" * 10_000_000)),
        png(4, 4, b"\0" * 1_000),
    ],
    ids=["little data", "many pixels", "no data"],
)
def test_a_bomb_takes_no_memory_worth_speaking_of(bomb: bytes) -> None:
    refuse_without_memory(bomb, 64, None)


def test_an_avif_that_hides_a_large_picture_behind_a_small_one_takes_no_memory() -> None:
    large = encoded(Image.new("RGB", (4096, 4096)), "AVIF", subsampling="4:2:0", quality=50)
    refuse_without_memory(size_of_avif(large, 64, 64), 16, "16777216 pixels of data for a picture of 4096")


def refuse_without_memory(bomb: bytes, most_mib: int, why: str | None) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Unfit, match=why):
        decode(bomb, MAX_PIXELS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < most_mib * 1024  # KiB


def test_no_more_data_is_unpacked_than_a_picture_has_pixels() -> None:
    bomb = png(100, 100, zlib.compress(b"\0" * 100_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (pixels(bomb) == 0).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB


@pytest.mark.parametrize(
    ("kind", "side", "most"), [("WEBP", SIDE, 1), ("AVIF", SIDE, 1), ("PNG", SIDE, 2), ("WEBP", SIDE // 2, 2)]
)
async def test_large_webp_and_avif_are_decoded_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kind: str, side: int, most: int
) -> None:
    decoder = Pictures(2, 1_000_000, SIDE * SIDE)
    load, at_once, seen = picture_module._load, list[None](), list[int]()

    def slow(file: ImageFile, needed: int) -> Image.Image:
        at_once.append(None)
        seen.append(len(at_once))
        time.sleep(0.05)
        at_once.pop()
        return load(file, needed)

    monkeypatch.setattr(picture_module, "_load", slow)
    data, never = encoded(gradient(side, side), kind), Deadline.never()
    await asyncio.gather(*(decoder.prepare(data, "images", SMALL, "float32", never) for _ in range(4)))
    assert max(seen) == most
    decoder.close()
