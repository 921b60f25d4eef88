"""What a file says about itself, before a pixel is decoded."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest
from PIL import Image

from services.vision.formats import Unfit, av1, inspect
from tests.unit.vision.files import (
    KINDS,
    TURNED,
    chunk,
    encoded,
    gradient,
    png,
    segment,
    size_of_avif,
    size_of_jpeg,
    with_orientation,
    with_segment,
)

each_kind = pytest.mark.parametrize("kind", KINDS)


def gif(width: int, height: int, data: bytes) -> bytes:
    """A GIF of one frame, of any size and any data."""
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + data
    return b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x80, 0, 0) + b"\0" * 6 + frame + b";"


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("run.sh", "rm -rf /")
    return buffer.getvalue()


@each_kind
def test_a_whole_file_tells_its_kind_and_size(kind: str) -> None:
    outline = inspect(encoded(gradient(48, 32), kind))
    assert (outline.kind, outline.width, outline.height, outline.orientation) == (kind, 48, 32, 1)


@pytest.mark.parametrize(
    "data",
    [b"", b"GIF88a" + b"\0" * 20, b"\0\0\0\x10ftypheic\0\0\0\0", b"BM" + b"\0" * 60, b"\x00\x00\x01\x00", b"<svg/>"],
)
def test_other_formats_are_refused(data: bytes) -> None:
    with pytest.raises(Unfit, match="a PNG, JPEG, WebP, GIF or AVIF, got") as refusal:
        inspect(data)
    assert refusal.value.why == "format"


@each_kind
def test_a_file_that_is_cut_short_anywhere_is_refused(kind: str) -> None:
    whole = encoded(gradient(), kind)
    for length in range(len(whole)):
        with pytest.raises(Unfit):
            inspect(whole[:length])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("more", [archive(), b"<html><script>", b"x", b"\0\0x"])
def test_something_glued_on_is_refused(kind: str, more: bytes) -> None:
    with pytest.raises(Unfit, match="nothing after it"):
        inspect(encoded(gradient(), kind) + more)


@pytest.mark.parametrize("more", [archive(), b"<html><script>", b"x", b"\0\0\0\0html", b"\0\0\0\x0chtmlscri"])
def test_what_follows_an_avif_must_be_a_box_that_avif_has(more: bytes) -> None:
    with pytest.raises(Unfit, match="a whole AVIF"):
        inspect(encoded(gradient(), "AVIF") + more)


def test_something_glued_on_within_what_a_webp_says_is_its_length_is_no_chunk() -> None:
    whole = encoded(gradient(), "WEBP") + archive()
    longer = whole[:4] + struct.pack("<I", len(whole) - 8) + whole[8:]
    with pytest.raises(Unfit):
        inspect(longer)


def test_zeros_after_a_jpeg_are_padding() -> None:
    assert inspect(encoded(gradient(), "JPEG") + b"\0" * 100).width == 48


def test_further_pictures_may_follow_a_jpeg_that_announces_them() -> None:
    small = encoded(gradient(16, 16), "JPEG")
    announced = with_segment(encoded(gradient(), "JPEG"), 0xE2, b"MPF\0II*\0")
    assert inspect(announced + small + b"\0\0" + small + b"\0").width == 48
    with pytest.raises(Unfit, match="nothing after it"):
        inspect(announced + small + archive())
    with pytest.raises(Unfit, match="nothing after it"):
        inspect(encoded(gradient(), "JPEG") + small)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (png(50_000, 50_000, zlib.compress(b"\0")), "bytes of data for 50000x50000 pixels"),
        (png(0, 5, zlib.compress(b"\0" * 5)), "0x5 pixels"),
        (png(4, 4, zlib.compress(b"\0" * 52), depth=3), "an IHDR that PNG does not have"),
        (png(4, 4, zlib.compress(b"\0" * 52), colour=5), "an IHDR that PNG does not have"),
        (png(4, 4, zlib.compress(b"\0" * 52), extra=chunk(b"EVIL", b"x")), "a critical chunk"),
        (png(4, 4, zlib.compress(b"\0" * 52), extra=chunk(b"IHDR", b"\0" * 13)), "a second IHDR"),
        (png(4, 4, zlib.compress(b"\0" * 52), extra=chunk(b"teXt", b"") * 17_000), "more than 16384 chunks"),
        (b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""), "no IHDR"),
        (size_of_jpeg(encoded(gradient(), "JPEG"), 60_000, 60_000), "bytes of data for 60000x60000 pixels"),
        (size_of_jpeg(encoded(gradient(), "JPEG"), 0, 32), "0x32 pixels"),
        (with_segment(encoded(gradient(), "JPEG"), 0xC9, b"\0" * 9), "neither baseline nor progressive"),
        (b"\xff\xd8" + segment(0xE0, b"JFIF\0" + b"\0" * 9) + b"\xff\xd9", "no data"),
        (b"\xff\xd8" + segment(0xDA, b"\0" * 4) + b"\xff\xd9", "a scan before its frame"),
        (b"\xff\xd8\xff\xe0\x00\x01\xff\xd9", "a segment of 1 bytes"),
        (b"\xff\xd8" + b"\xff" * 3_000_000, "cut short"),
        (b"\xff\xd8\xff\xfe\0\x02abc", "no marker at byte 6"),
        (gif(60_000, 60_000, b"\x02\x01\0\0"), "1 bytes of data for 60000x60000 pixels"),
        (gif(0, 8, b"\x02\x01\0\0"), "a frame of 0x8 pixels in codes of 2 bits"),
        (gif(8, 8, b"\x0c\x01\0\0"), "a frame of 8x8 pixels in codes of 12 bits"),
        (gif(8, 8, b"\x02" + b"\x01\x00" * 70_000), "more than 65536 blocks"),
        (b"GIF89a" + b"\0" * 7 + b";", "no picture"),
        (b"GIF89a" + b"\0" * 7 + b"PK\x03\x04", "a block of kind 50 at byte 13"),
        (size_of_avif(encoded(gradient(2048, 1024), "AVIF"), 64, 64), "2097152 pixels of data for a picture of 4096"),
        (encoded(gradient(), "AVIF").replace(b"av01", b"hvc1"), "no picture"),
        (encoded(gradient(), "AVIF").replace(b"ispe", b"free"), "no size"),
        (encoded(gradient(), "AVIF").replace(b"meta", b"free"), "0 boxes that describe a picture"),
    ],
)
def test_what_lies_about_its_size_or_its_form_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Unfit, match=message):
        inspect(data)


def test_a_jpeg_with_more_scans_than_anybody_writes_is_refused() -> None:
    progressive = encoded(gradient(), "JPEG", progressive=True)
    last = progressive.rindex(b"\xff\xda")
    assert inspect(progressive).width == 48
    with pytest.raises(Unfit, match="more than 32 scans"):
        inspect(progressive[:-2] + progressive[last:-2] * 40 + b"\xff\xd9")


def test_a_webp_whose_canvas_and_picture_differ_is_refused() -> None:
    whole = with_orientation(gradient(), "WEBP", 1)
    at = whole.index(b"VP8X") + 12
    with pytest.raises(Unfit, match="sizes that differ"):
        inspect(whole[:at] + b"\xff\x3f\0" + whole[at + 3 :])


def test_a_png_with_a_flipped_bit_is_refused_whatever_bit_it_is() -> None:
    whole = encoded(gradient(12, 8), "PNG")
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            with pytest.raises(Unfit):
                inspect(bytes(flipped))


@pytest.mark.parametrize("kind", TURNED)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_way_up_is_read_from_exif(kind: str, orientation: int) -> None:
    assert inspect(with_orientation(gradient(), kind, orientation)).orientation == orientation


@pytest.mark.parametrize(
    "block",
    [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0"],
)
def test_a_broken_exif_block_leaves_a_picture_upright(block: bytes) -> None:
    assert inspect(with_segment(encoded(gradient(), "JPEG"), 0xE1, b"Exif\0\0" + block)).orientation == 1


def test_metadata_is_not_shown_to_a_decoder() -> None:
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 10_000_000)) + chunk(b"iCCP", b"p\0\0garbage")
    data = b"\0" + b"\1\2\3" * 4
    assert inspect(png(4, 4, zlib.compress(data * 4), extra=bomb)).essence == png(4, 4, zlib.compress(data * 4))
    photo = encoded(gradient(), "JPEG")
    assert inspect(with_segment(photo, 0xE2, b"ICC_PROFILE\0garbage")).essence == photo
    drawn = gradient().quantize(16)
    commented = encoded(drawn, "GIF", comment=b"secret" * 100)
    assert b"secret" in commented
    assert inspect(commented).essence[6:] == inspect(encoded(drawn, "GIF")).essence[6:]  # after the version
    assert b"Exif" not in inspect(with_orientation(gradient(), "AVIF", 1)).essence


def test_of_a_gif_only_the_first_frame_is_shown_to_a_decoder() -> None:
    frames = [gradient(48, 32).quantize(16), gradient(32, 48).resize((48, 32)).quantize(16)]
    one, two = (io.BytesIO(), io.BytesIO())
    frames[0].save(one, "GIF")
    frames[0].save(two, "GIF", save_all=True, append_images=frames[1:], loop=0)
    assert len(two.getvalue()) > len(one.getvalue())
    assert len(inspect(two.getvalue()).essence) <= len(one.getvalue()) + 8  # how long the frame is shown


@pytest.mark.parametrize("kind", ["WEBP", "GIF", "AVIF"])
def test_an_animations_outline_is_its_canvas(kind: str) -> None:
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "blue", "green")]
    buffer = io.BytesIO()
    frames[0].save(buffer, kind, save_all=True, append_images=frames[1:], duration=40)
    outline = inspect(buffer.getvalue())
    assert (outline.width, outline.height) == (20, 10)


@pytest.mark.parametrize(
    ("size", "coded"), [((1, 1), 1), ((48, 32), 48 * 32), ((1000, 700), 700_000)], ids=["smallest", "small", "larger"]
)
def test_the_size_in_av1_data_is_that_of_the_picture(size: tuple[int, int], coded: int) -> None:
    data = encoded(gradient(*size), "AVIF")
    at = data.index(b"mdat") + 4
    assert av1.largest(data[at:]) == coded


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
@pytest.mark.parametrize("size", [(1, 1), (257, 257), (2049, 33)])
def test_avif_animations_with_transparency_of_any_size_pass(mode: str, size: tuple[int, int]) -> None:
    frames = [Image.new(mode, size) for _ in range(2)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "AVIF", save_all=True, append_images=frames[1:], speed=10)
    assert inspect(buffer.getvalue()).kind == "AVIF"


@pytest.mark.parametrize("data", [b"", b"\x12\0", b"\x0a\x0b\0", b"\x0a\xff" * 9, b"\x08\0\0\0"])
def test_av1_data_without_a_header_is_refused(data: bytes) -> None:
    with pytest.raises(Unfit, match="AV1 data"):
        av1.largest(data)
