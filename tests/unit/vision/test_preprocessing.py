"""A picture becomes what torchvision and timm make of it, written out here with Pillow and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from services.vision.manifest import INTERPOLATIONS, Preprocessing
from services.vision.pictures import fit, normalize
from tests.unit.vision.files import gradient

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def resized(picture: Image.Image, shorter: int, resample: Image.Resampling) -> Image.Image:
    """`torchvision.transforms.Resize(shorter)`."""
    width, height = picture.size
    if width <= height:
        return picture.resize((shorter, int(shorter * height / width)), resample)
    return picture.resize((int(shorter * width / height), shorter), resample)


def cropped(picture: Image.Image, height: int, width: int) -> Image.Image:
    """`torchvision.transforms.CenterCrop((height, width))`."""
    top, left = round((picture.height - height) / 2.0), round((picture.width - width) / 2.0)
    return picture.crop((left, top, left + width, top + height))


def tensor(picture: Image.Image) -> np.ndarray:
    """`ToTensor` and `Normalize`."""
    values = np.asarray(picture, np.float32).transpose(2, 0, 1) / 255
    return (values - np.array(MEAN, np.float32)[:, None, None]) / np.array(STD, np.float32)[:, None, None]


def made(picture: Image.Image, **wanted: Any) -> np.ndarray:
    preprocessing = Preprocessing(mean=MEAN, std=STD, **wanted)
    return normalize(fit(picture, preprocessing), preprocessing, "float32")


LEVEL = 1 / 255 / min(STD)  # one step of 8 bits, after normalization


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [(451, 300), (300, 451), (64, 64), (20, 10), (256, 256), (257, 700)])
def test_the_shorter_side_is_resized_and_the_centre_kept(interpolation: str, size: tuple[int, int]) -> None:
    picture = noise(*size)
    resample = Image.Resampling[interpolation.upper()]
    expected = tensor(cropped(resized(picture, 64, resample), 56, 48))
    found = made(picture, resize=64, crop=(56, 48), interpolation=interpolation)
    assert np.abs(found - expected).max() < 1.1 * LEVEL  # rounding, in few places
    assert np.abs(found - expected).mean() < 0.01 * LEVEL


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_two_numbers_squash_the_picture(interpolation: str) -> None:
    picture = noise(90, 60)
    expected = tensor(picture.resize((32, 48), Image.Resampling[interpolation.upper()]))
    assert np.abs(made(picture, resize=(48, 32), interpolation=interpolation) - expected).max() < 1e-5


def test_a_squashed_picture_may_be_cropped() -> None:
    picture = gradient(90, 60)
    expected = tensor(cropped(picture.resize((40, 40), Image.Resampling.BICUBIC), 32, 24))
    found = made(picture, resize=(40, 40), crop=(32, 24), interpolation="bicubic")
    assert np.abs(found - expected).max() < 1.1 * LEVEL


def test_a_much_larger_picture_is_shrunk_in_two_steps_indistinguishable_from_one() -> None:
    picture = gradient(2000, 1500)
    expected = tensor(cropped(resized(picture, 64, Image.Resampling.BICUBIC), 56, 56))
    found = made(picture, resize=64, crop=(56, 56), interpolation="bicubic")
    assert np.abs(found - expected).max() < 2.1 * LEVEL


@given(st.integers(1, 3_000), st.integers(1, 3_000), st.integers(1, 300), st.data())
def test_a_picture_of_any_size_gets_the_size_that_is_wanted(width: int, height: int, shorter: int, data: Any) -> None:
    crop = data.draw(st.tuples(st.integers(1, shorter), st.integers(1, shorter)))
    wanted = Preprocessing(resize=shorter, crop=crop, interpolation="bicubic")
    assert fit(Image.new("RGB", (width, height)), wanted).size == crop[::-1]


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1)])
def test_a_picture_of_one_line_is_not_resized_to_millions_of_pixels(size: tuple[int, int]) -> None:
    assert fit(Image.new("RGB", size), Preprocessing(resize=256, crop=(224, 224))).size == (224, 224)
