"""Headers of picture files, read before a pixel is decoded."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest
from PIL import Image
from PIL.ImageFile import ImageFile

from services.vision.formats import Unfit, av1, avif, jpeg, open_picture, orientation
from services.vision.pictures import decode
from tests.unit.vision.files import (
    KINDS,
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
MAX_PIXELS = 1_000_000


def opened(data: bytes) -> ImageFile:
    """The picture, of which no pixel is decoded yet."""
    return open_picture(data, MAX_PIXELS)


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
def test_kind_and_size_are_read_from_a_whole_file(kind: str) -> None:
    picture = opened(encoded(gradient(48, 32), kind))
    assert (picture.format, picture.size) == (kind, (48, 32))


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (b"", "0 bytes that begin with nothing"),
        (b"GIF88a" + b"\0" * 20, "26 bytes that begin with 4749463838610000"),
        (b"\x00\x00\x01\x00", "4 bytes that begin with 00000100"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC; convert it to JPEG or PNG"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", "HEIC; convert it to JPEG or PNG"),
        (b"II*\0", "TIFF; convert it to JPEG or PNG"),
        (b"BM" + b"\0" * 60, "BMP; convert it to JPEG or PNG"),
        (b"<svg/>", "SVG; convert it to JPEG or PNG"),
    ],
)
def test_another_format_is_refused_by_its_name_or_its_first_bytes(data: bytes, got: str) -> None:
    with pytest.raises(Unfit, match=f"a PNG, JPEG, WebP, GIF or AVIF, got {got}") as refusal:
        opened(data)
    assert refusal.value.why == "format"


@each_kind
def test_a_file_that_is_cut_short_anywhere_is_refused(kind: str) -> None:
    whole = encoded(gradient(), kind)
    for length in range(len(whole)):
        with pytest.raises(Unfit):
            decode(whole[:length], MAX_PIXELS)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("more", [archive(), b"<html><script>", b"x", b"\0\0x"])
def test_something_glued_on_is_refused(kind: str, more: bytes) -> None:
    with pytest.raises(Unfit, match="nothing after it"):
        opened(encoded(gradient(), kind) + more)


@pytest.mark.parametrize("more", [archive(), b"<html><script>", b"x", b"\0\0\0\0html", b"\0\0\0\x0chtmlscri"])
def test_data_after_an_avif_must_be_a_known_box(more: bytes) -> None:
    with pytest.raises(Unfit, match="a whole AVIF"):
        opened(encoded(gradient(), "AVIF") + more)


def test_something_glued_on_within_what_a_webp_says_is_its_length_is_no_chunk() -> None:
    whole = encoded(gradient(), "WEBP") + archive()
    longer = whole[:4] + struct.pack("<I", len(whole) - 8) + whole[8:]
    with pytest.raises(Unfit):
        opened(longer)


def test_zeros_after_a_jpeg_are_padding() -> None:
    assert opened(encoded(gradient(), "JPEG") + b"\0" * 100).width == 48


def test_the_notes_of_a_samsung_phone_may_follow_a_jpeg() -> None:
    notes = b"\0\0\x01\x0a\x0e\0\0\0Image_UTC_Data1732811111111SEFH" + struct.pack("<IIHHII", 107, 1, 0, 0x0A01, 35, 35)
    assert opened(encoded(gradient(), "JPEG") + notes + struct.pack("<I", 24) + b"SEFT").width == 48
    with pytest.raises(Unfit, match="nothing after it"):
        opened(encoded(gradient(), "JPEG") + notes)


def boxes(*kinds: bytes) -> bytes:
    """Boxes of MP4, one of them with a long size."""
    short = b"".join(struct.pack(">I", 16) + kind + bytes(8) for kind in kinds)
    return short + struct.pack(">I4sQ", 1, b"free", 16)


@pytest.mark.parametrize("name", [b'GCamera:MotionPhoto="1"', b'GCamera:MicroVideo="1"'])
def test_the_video_of_a_motion_photo_may_follow_a_jpeg(name: bytes) -> None:
    plain, small, video = (
        encoded(gradient(), "JPEG"),
        encoded(gradient(16, 16), "JPEG"),
        boxes(b"ftyp", b"mdat", b"moov"),
    )
    photo = with_segment(plain, 0xE1, b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta " + name)
    assert opened(photo + video).width == 48
    assert opened(with_segment(photo, 0xE2, b"MPF\0II*\0") + small + video).width == 48, "with a gain map"
    for other in (plain + video, photo + video + archive(), photo + archive() + video, photo + small + video):
        with pytest.raises(Unfit, match="nothing after it"):
            opened(other)


def test_further_pictures_may_follow_a_jpeg_that_announces_them() -> None:
    small = encoded(gradient(16, 16), "JPEG")
    announced = with_segment(encoded(gradient(), "JPEG"), 0xE2, b"MPF\0II*\0")
    assert opened(announced + small + b"\0\0" + small + b"\0").width == 48
    with pytest.raises(Unfit, match="nothing after it"):
        opened(announced + small + archive())
    with pytest.raises(Unfit, match="nothing after it"):
        opened(encoded(gradient(), "JPEG") + small)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (png(50_000, 50_000, zlib.compress(b"\0")), "at most 1000000 pixels, 65535 to a side, got 50000x50000"),
        (png(0, 5, zlib.compress(b"\0" * 5)), "one that is damaged"),
        (png(4, 4, zlib.compress(b"\0" * 52), depth=3), "one that is damaged"),
        (png(4, 4, zlib.compress(b"\0" * 52), colour=5), "one that is damaged"),
        (png(4, 4, zlib.compress(b"\0" * 52), extra=chunk(b"IHDR", b"\0" * 13)), "one that is damaged"),
        (b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""), "one that is damaged"),
        (
            size_of_jpeg(encoded(gradient(), "JPEG"), 60_000, 60_000),
            "at most 1000000 pixels, 65535 to a side, got 60000x60000",
        ),
        (size_of_jpeg(encoded(gradient(), "JPEG"), 1_000, 1_000), r"a whole JPEG, got \d+ bytes for 1000x1000 pixels"),
        (png(1_000, 1_000, zlib.compress(b"\0")), r"a whole PNG, got \d+ bytes for 1000x1000 pixels"),
        (gif(1_000, 1_000, b"\x02\x01\0\0"), r"a whole GIF, got \d+ bytes for 1000x1000 pixels"),
        (size_of_jpeg(encoded(gradient(), "JPEG"), 0, 32), "one that is damaged"),
        (with_segment(encoded(gradient(), "JPEG"), 0xC9, b"\0" * 9), "one that is damaged"),
        (b"\xff\xd8" + segment(0xE0, b"JFIF\0" + b"\0" * 9) + b"\xff\xd9", "no data"),
        (b"\xff\xd8" + segment(0xDA, b"\0" * 4) + b"\xff\xd9", "one that is damaged"),
        (b"\xff\xd8\xff\xe0\x00\x01\xff\xd9", "a segment of 1 bytes"),
        (b"\xff\xd8" + b"\xff" * 3_000_000, "cut short"),
        (b"\xff\xd8\xff\xfe\0\x02abc", "no marker at byte 6"),
        (gif(60_000, 60_000, b"\x02\x01\0\0"), "at most 1000000 pixels, 65535 to a side, got more than"),
        (gif(0, 8, b"\x02\x01\0\0"), "a GIF that can be decoded"),
        (gif(8, 8, b"\x0c\x01\0\0"), "a GIF that can be decoded"),
        (b"GIF89a" + b"\0" * 7 + b";", "one that is damaged"),
        (b"GIF89a" + b"\0" * 7 + b"PK\x03\x04", "one that is damaged"),
        (
            size_of_avif(encoded(Image.new("RGB", (2048, 1024)), "AVIF", quality=50), 64, 64),
            "2097152 pixels of data for a picture of 4096",
        ),
        (encoded(gradient(), "AVIF").replace(b"av01", b"hvc1"), "no picture"),
        (encoded(gradient(), "AVIF").replace(b"ispe", b"free"), "no size"),
        (encoded(gradient(), "AVIF").replace(b"meta", b"free"), "0 boxes that describe a picture"),
    ],
)
def test_a_picture_with_a_false_size_or_format_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Unfit, match=message):
        decode(data, MAX_PIXELS)


def test_a_jpeg_with_more_scans_than_encoders_write_is_refused() -> None:
    progressive = encoded(gradient(), "JPEG", progressive=True)
    last = progressive.rindex(b"\xff\xda")
    assert opened(progressive).width == 48
    with pytest.raises(Unfit, match="more than 32 scans"):
        opened(progressive[:-2] + progressive[last:-2] * 40 + b"\xff\xd9")


def test_a_webp_with_another_canvas_size_is_refused() -> None:
    whole = with_orientation(gradient(), "WEBP", 1)
    at = whole.index(b"VP8X") + 12
    with pytest.raises(Unfit, match="one that is damaged"):
        opened(whole[:at] + b"\xff\x3f\0" + whole[at + 3 :])


def test_a_png_with_any_flipped_bit_is_refused() -> None:
    whole = encoded(gradient(12, 8), "PNG")
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            with pytest.raises(Unfit):
                opened(bytes(flipped))


@pytest.mark.parametrize(
    "block",
    [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0"],
)
def test_a_broken_exif_block_leaves_a_picture_upright(block: bytes) -> None:
    assert orientation(b"Exif\0\0" + block) == 1
    assert decode(with_segment(encoded(gradient(), "JPEG"), 0xE1, b"Exif\0\0" + block), MAX_PIXELS).size == (48, 32)


def test_metadata_is_not_shown_to_a_decoder() -> None:
    photo = encoded(gradient(), "JPEG")
    assert jpeg.essence(with_segment(photo, 0xE2, b"ICC_PROFILE\0garbage"))[0] == photo
    turned = with_orientation(gradient(), "JPEG", 6)
    kept, block = jpeg.essence(turned)
    assert b"Exif" not in kept
    assert orientation(block) == 6
    assert b"Exif" not in avif.essence(with_orientation(gradient(), "AVIF", 1))


def test_texts_of_a_png_that_unpack_to_more_than_4_mib_are_refused() -> None:
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 1_000_000))
    assert opened(png(4, 4, zlib.compress(b"\0" * 52), extra=text * 4)).size == (4, 4)
    for bomb in (text * 5, chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 10_000_000))):
        with pytest.raises(Unfit, match="one that is damaged"):
            opened(png(4, 4, zlib.compress(b"\0" * 52), extra=bomb))


def exif_blocks() -> bytes:
    """A JPEG of 4 MB: half of it is EXIF, and 180,000 more blocks of it, each of which Pillow would put after the
    others, at the price of a copy."""
    photo = encoded(gradient(), "JPEG")
    large = segment(0xE1, b"Exif\0\0" + b"x" * 65_000) * 31
    return photo[:2] + large + segment(0xE1, b"Exif\0\0x") * 180_000 + photo[2:]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (png(4, 4, zlib.compress(b"\0" * 52), extra=chunk(b"teSt", b"") * 300_000), "a whole PNG, got one of too many"),
        (png(4, 4, b"", extra=chunk(b"IDAT", b"") * 300_000), "a whole PNG, got one of too many parts"),
        (exif_blocks(), "more than 16384 segments"),
        (png(4, 4, b"", extra=chunk(b"IDAT", b"") * 300_000)[:-12], "a whole PNG, got one of too many parts"),
        (gif(8, 8, b"\x02\0")[:-1] + b"!\x01\0" * 1_300_000 + b";", "a whole GIF, got one of too many parts"),
        (gif(8, 8, b"\x02\0")[:-1] + b"!\xfe" + b"\1x" * 2_000_000 + b"\0;", "a whole GIF, got one of too many parts"),
    ],
    ids=["chunks", "empty data", "EXIF", "data without an end", "extensions", "a comment"],
)
def test_a_file_of_too_many_parts_is_refused_while_it_is_walked_through(data: bytes, message: str) -> None:
    with pytest.raises(Unfit, match=message):
        opened(data)


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
    assert opened(buffer.getvalue()).format == "AVIF"


@pytest.mark.parametrize("data", [b"", b"\x12\0", b"\x0a\x0b\0", b"\x0a\xff" * 9, b"\x08\0\0\0"])
def test_av1_data_without_a_header_is_refused(data: bytes) -> None:
    with pytest.raises(Unfit, match="AV1 data"):
        av1.largest(data)
