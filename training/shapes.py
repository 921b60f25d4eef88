"""Draw pictures of coloured shapes: what the demo vision model learns to name.

`draw(seed)` is a pure function of its seed: a shape of the corpus's colours and kinds on a background that stays
distinguishable from it, with clutter, noise, blur and JPEG artefacts. Some pictures are as plain as a drawing program
makes them.
"""

from __future__ import annotations

import colorsys
import io
import math
import random

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFilter

from corpus_tables import COLORS, SHAPES

LABELS = [f"{color} {shape}" for color in COLORS for shape in SHAPES]
SMALLEST, LARGEST = 64, 224  # pixels a side
_CONTRAST = 0.42  # least distance of a background from the shape's colour, of the square root of 3 there can be
_SHARPER = 3  # drawn so many times larger, then scaled down, for smooth edges
# Hue in degrees, saturation and value of 0 to 1, as ranges.
_PAINTS = {
    "red": ((-9, 9), (0.78, 1.0), (0.62, 1.0)),
    "orange": ((21, 40), (0.8, 1.0), (0.88, 1.0)),
    "yellow": ((51, 64), (0.65, 1.0), (0.85, 1.0)),
    "green": ((92, 152), (0.55, 1.0), (0.42, 1.0)),
    "blue": ((202, 244), (0.6, 1.0), (0.5, 1.0)),
    "purple": ((268, 302), (0.45, 1.0), (0.42, 0.95)),
    "black": ((0, 360), (0.0, 0.3), (0.0, 0.13)),
    "white": ((0, 360), (0.0, 0.05), (0.94, 1.0)),
}
_NAMED = {"green": ("green", "lime"), "purple": ("purple", "darkviolet")}  # other colours are what CSS calls so
Color = tuple[float, float, float]  # red, green, blue, 0 to 1
Points = list[tuple[float, float]]


def draw(seed: int, label: str | None = None) -> tuple[Image.Image, str]:
    """An RGB picture and what it shows: `label`, or any of LABELS."""
    rng = random.Random(seed)
    noise = np.random.default_rng(seed)
    label = label or rng.choice(LABELS)
    color, shape = label.split()
    plain = rng.random() < 0.2
    size = _size(rng)
    paint = _paint(color, rng)
    picture = _background(size, paint, plain, rng, noise)
    if not plain:
        _clutter(picture, rng)
    mask = _mask(shape, size, rng)
    ink = Image.new("RGB", size, _bytes(paint)) if plain else _shade(size, paint, rng)
    picture.paste(ink, mask=mask)
    return (picture if plain else _weather(picture, rng, noise)), label


def _size(rng: random.Random) -> tuple[int, int]:
    width = rng.randint(SMALLEST, LARGEST)
    height = width if rng.random() < 0.5 else round(width * rng.uniform(0.75, 1.33))
    return width, min(max(height, SMALLEST), LARGEST)


def _paint(color: str, rng: random.Random) -> Color:
    if rng.random() < 0.25:
        red, green, blue = ImageColor.getrgb(rng.choice(_NAMED.get(color, (color,))))[:3]
        return red / 255, green / 255, blue / 255
    hue, saturation, value = (rng.uniform(*span) for span in _PAINTS[color])
    return colorsys.hsv_to_rgb(hue % 360 / 360, saturation, value)


def _bytes(color: Color) -> tuple[int, int, int]:
    red, green, blue = (round(255 * min(max(part, 0.0), 1.0)) for part in color)
    return red, green, blue


def _away_from(paint: Color, rng: random.Random) -> Color:
    """A colour that differs visibly from `paint`: any colour, a grey, black or white."""
    while True:
        grey = rng.choice((rng.random(), 0.0, 1.0))
        color = rng.choice(((rng.random(), rng.random(), rng.random()), (grey, grey, grey)))
        if math.dist(color, paint) > _CONTRAST:
            return color


def _background(
    size: tuple[int, int], paint: Color, plain: bool, rng: random.Random, noise: np.random.Generator
) -> Image.Image:
    first = _away_from(paint, rng)
    if plain or rng.random() < 0.25:
        return Image.new("RGB", size, _bytes(first))
    # A gradient may pass close to the shape's colour on its way, so its ends stay near one another.
    second = tuple(min(max(part + rng.uniform(-0.22, 0.22), 0.0), 1.0) for part in first)
    share = _gradient(size, rng) if rng.random() < 0.6 else _spots(size, noise)
    field = np.asarray(first) * (1 - share[..., None]) + np.asarray(second) * share[..., None]
    return Image.fromarray((field * 255).astype(np.uint8))


def _gradient(size: tuple[int, int], rng: random.Random) -> np.ndarray:
    """0 to 1 across the picture, in any direction: (height, width)."""
    angle = rng.uniform(0, 2 * math.pi)
    x, y = np.meshgrid(np.linspace(-1, 1, size[0]), np.linspace(-1, 1, size[1]))
    field = x * math.cos(angle) + y * math.sin(angle)
    return (field - field.min()) / np.ptp(field)


def _spots(size: tuple[int, int], noise: np.random.Generator) -> np.ndarray:
    """Soft noise of 0 to 1: (height, width)."""
    grain = noise.integers(0, 256, noise.integers(3, 14, 2), dtype=np.uint8)
    return np.asarray(Image.fromarray(grain).resize(size, Image.Resampling.BICUBIC)) / 255


def _clutter(picture: Image.Image, rng: random.Random) -> None:
    """Small lines and dots, which the shape will cover where it lies."""
    pen = ImageDraw.Draw(picture, "RGBA")
    unit = min(picture.size)
    for _ in range(rng.randint(0, 7)):
        x, y = rng.uniform(0, picture.width), rng.uniform(0, picture.height)
        ink = (*(rng.randint(0, 255) for _ in range(3)), rng.randint(40, 170))
        if rng.random() < 0.5:
            angle, length = rng.uniform(0, 2 * math.pi), rng.uniform(0.1, 0.6) * unit
            end = (x + length * math.cos(angle), y + length * math.sin(angle))
            pen.line(((x, y), end), fill=ink, width=max(1, round(unit * rng.uniform(0.005, 0.02))))
        else:
            radius = unit * rng.uniform(0.008, 0.04)
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)


def _mask(shape: str, size: tuple[int, int], rng: random.Random) -> Image.Image:
    """Where the shape is, 0 to 255: scaled, turned and moved, and all of it inside."""
    big = Image.new("L", (size[0] * _SHARPER, size[1] * _SHARPER))
    radius = rng.uniform(0.2, 0.48) * min(big.size)
    stretch = math.sqrt(rng.uniform(0.87, 1.15))
    turn = rng.uniform(0, 2 * math.pi) if rng.random() < 0.7 else 0.0
    room = [side - 2 * radius for side in big.size]
    center = [radius + max(free, 0) * rng.random() for free in room]

    def place(points: Points) -> Points:
        placed = []
        for x, y in points:
            x, y = x * stretch * 0.94, y / stretch * 0.94
            x, y = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
            placed.append((center[0] + radius * x, center[1] + radius * y))
        return placed

    pen = ImageDraw.Draw(big)
    pen.polygon(place(_outline(shape, rng)), fill=255)
    if shape == "ring":
        hole = rng.uniform(0.45, 0.72)
        pen.polygon(place([(x * hole, y * hole) for x, y in _corners(64)]), fill=0)
    return big.resize(size, Image.Resampling.BOX)


def _outline(shape: str, rng: random.Random) -> Points:
    """The shape's corners, in a circle of radius 1; upright."""
    if shape in ("circle", "ring"):
        return _corners(64)
    if shape == "square":
        return _corners(4, math.pi / 4)
    if shape == "triangle":
        return _corners(3)
    if shape == "star":
        inner = rng.uniform(0.38, 0.5)
        pairs = zip(_corners(5), _corners(5, math.pi / 5), strict=True)
        return [point for outer, (x, y) in pairs for point in (outer, (x * inner, y * inner))]
    arm = rng.uniform(0.2, 0.34)
    quarter = [(arm, -0.94), (arm, -arm), (0.94, -arm)]
    return [point for turn in range(4) for point in [_quarters(corner, turn) for corner in quarter]]


def _corners(count: int, offset: float = 0.0) -> Points:
    """Evenly spaced on the circle of radius 1, the first at the top."""
    angles = (2 * math.pi * corner / count + offset for corner in range(count))
    return [(math.sin(angle), -math.cos(angle)) for angle in angles]


def _quarters(point: tuple[float, float], turns: int) -> tuple[float, float]:
    x, y = point
    for _ in range(turns):
        x, y = -y, x
    return x, y


def _shade(size: tuple[int, int], paint: Color, rng: random.Random) -> Image.Image:
    """The paint, a little lighter on one side."""
    light = 1 + rng.uniform(0, 0.1) * (_gradient(size, rng)[..., None] - 0.5)
    return Image.fromarray((np.clip(np.asarray(paint) * light, 0, 1) * 255).astype(np.uint8))


def _weather(picture: Image.Image, rng: random.Random, noise: np.random.Generator) -> Image.Image:
    """The picture with the distortions of cameras and files: light, blur, noise, JPEG."""
    if rng.random() < 0.3:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, min(picture.size) / 90)))
    field = np.asarray(picture).astype(np.float32)
    field = field * rng.uniform(0.94, 1.06) + rng.uniform(-6, 6)
    if rng.random() < 0.6:
        field += noise.standard_normal(field.shape, dtype=np.float32) * rng.uniform(1, 12)
    picture = Image.fromarray(np.clip(field, 0, 255).astype(np.uint8))
    if rng.random() < 0.5:
        packed = io.BytesIO()
        picture.save(packed, "JPEG", quality=rng.randint(35, 95))
        picture = Image.open(io.BytesIO(packed.getvalue())).convert("RGB")
    return picture
