"""The pictures the demo vision model is trained and measured with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

TRAINING = Path(__file__).parents[3] / "training"


@pytest.fixture(scope="module")
def shapes() -> Iterator[ModuleType]:
    """The training scripts are no package: they import each other by their bare names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TRAINING))
        import shapes  # type: ignore[import-not-found]

        yield shapes
        for name in ("shapes", "corpus"):
            sys.modules.pop(name, None)


def test_a_picture_is_a_pure_function_of_its_seed(shapes: ModuleType) -> None:
    (picture, label), (again, same) = shapes.draw(7), shapes.draw(7)
    assert label == same
    assert picture.tobytes() == again.tobytes()
    assert shapes.draw(8)[0].tobytes() != picture.tobytes()


def test_pictures_are_rgb_and_keep_to_their_size(shapes: ModuleType) -> None:
    for seed in range(40):
        picture, label = shapes.draw(seed)
        assert picture.mode == "RGB"
        assert all(shapes.SMALLEST <= side <= shapes.LARGEST for side in picture.size)
        assert label in shapes.LABELS


def test_every_colour_and_shape_of_the_corpus_has_a_label_and_can_be_drawn(shapes: ModuleType) -> None:
    assert len(set(shapes.LABELS)) == 48
    assert all(shapes.draw(0, label)[1] == label for label in shapes.LABELS)


@pytest.mark.parametrize("seed", range(5))
def test_the_shape_covers_the_picture_with_its_colour(shapes: ModuleType, seed: int) -> None:
    red, green, blue = (channel for channel in np.moveaxis(np.asarray(shapes.draw(seed, "red square")[0]), -1, 0))
    mostly_red = (red > 120) & (green < 110) & (blue < 110)
    assert mostly_red.mean() > 0.03


def test_a_ring_has_a_hole_and_a_circle_has_none(shapes: ModuleType) -> None:
    assert _middle(shapes.draw(11, "red ring")[0]) != _middle(shapes.draw(11, "red circle")[0])


def _middle(picture: Image.Image) -> tuple[int, ...]:
    """The colour in the middle of what is red."""
    pixels = np.asarray(picture).astype(int)
    rows, columns = np.nonzero(pixels[..., 0] - pixels[..., 1:].max(-1) > 80)
    return tuple(pixels[(rows.min() + rows.max()) // 2, (columns.min() + columns.max()) // 2])
