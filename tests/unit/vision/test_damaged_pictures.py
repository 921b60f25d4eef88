"""A file of any content becomes an array or is refused."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.vision.formats import Unfit
from services.vision.manifest import Preprocessing
from services.vision.pictures import decode, fit, normalize
from tests.examples import examples
from tests.unit.vision.files import encoded, gradient, interlaced, with_orientation

MAX_PIXELS = 1_000_000
SMALL = Preprocessing(resize=(16, 16))


def attempt(data: bytes) -> np.ndarray | None:
    """Decode a file of any content: an array or a refusal, without another exception or a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return normalize(fit(decode(data, MAX_PIXELS, 16), SMALL), SMALL, "float32")
        except Unfit:
            return None


SAMPLES = {
    "png": encoded(gradient(), "PNG"),
    "png with a palette": encoded(gradient().quantize(16), "PNG", transparency=3),
    "png, interlaced": interlaced(gradient()),
    "png with alpha": encoded(gradient().convert("RGBA"), "PNG"),
    "jpeg": encoded(gradient(), "JPEG"),
    "jpeg, progressive": with_orientation(gradient(), "JPEG", 6),
    "jpeg for print": encoded(gradient().convert("CMYK"), "JPEG", progressive=True),
    "webp": encoded(gradient(), "WEBP", lossless=False),
    "gif": encoded(gradient().quantize(16), "GIF"),
    "gif, interlaced, transparent": encoded(gradient().quantize(16), "GIF", interlace=True, transparency=3),
    "avif": encoded(gradient(), "AVIF", quality=60),
    "avif with alpha": encoded(gradient().convert("RGBA"), "AVIF"),
    "webp without loss": encoded(gradient().convert("RGBA"), "WEBP"),
}
samples = st.sampled_from(sorted(SAMPLES)).map(SAMPLES.__getitem__)
thorough = settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(
    st.sampled_from(
        [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\x40\0\0\0WEBPVP8L", b"GIF89a", b"\0\0\0\x10ftypavif"]
    ),
    st.binary(max_size=400),
)
def test_random_bytes_are_refused(magic: bytes, data: bytes) -> None:
    assert attempt(magic + data) is None


@thorough
@given(samples, st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=8))
def test_flipped_bits_give_an_array_or_a_refusal(sample: bytes, flips: list[tuple[int, int]]) -> None:
    data = bytearray(sample)
    for place, bits in flips:
        data[place % len(data)] ^= bits
    array = attempt(bytes(data))
    assert array is None or (array.shape == (3, 16, 16) and np.isfinite(array).all())


@thorough
@given(samples, st.integers(0), st.integers(0), st.binary(max_size=30))
def test_pieces_that_are_cut_out_or_put_in_give_an_array_or_a_refusal(
    sample: bytes, begin: int, length: int, put_in: bytes
) -> None:
    begin %= len(sample)
    end = begin + length % 40
    array = attempt(sample[:begin] + put_in + sample[end:])
    assert array is None or array.shape == (3, 16, 16)


@thorough
@given(samples, st.binary(min_size=1, max_size=100).filter(lambda more: more.strip(b"\0")))
def test_a_tail_of_anything_is_refused(sample: bytes, tail: bytes) -> None:
    assert attempt(sample + tail) is None
