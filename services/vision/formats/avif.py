"""AVIF, box by box (ISO/IEC 14496-12 and 23008-12, https://aomediacodec.github.io/av1-avif/).

What the boxes say of the size is not what the decoder decodes: libavif decodes the picture as its AV1 data has it, and
scales it then. So the sizes in the AV1 data are read too (`av1`), and bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from services.vision.formats import av1
from services.vision.formats.unfit import MAX_PARTS, broken, cut_short

_BRANDS = (b"avif", b"avis")
_METADATA = (b"Exif", b"mime")  # kinds of items that have nothing to do with pixels
_PICTURE = b"av01"
_TOP = frozenset((b"ftyp", b"meta", b"mdat", b"moov", b"free", b"skip", b"uuid"))  # boxes that files have
# Times the pixels of a picture: it has transparency, a gain map, previews, and each with a margin for its frame's
# size. At 1.5 bytes for each, decoding stays below 16 bytes a pixel. Tiles may be larger than a small picture.
_MOST_CODED, _LEAST_CODED = 10, 1_048_576


@dataclass(frozen=True, slots=True)
class _Box:
    """The position of a box: its header begins at `begin`, its content at `at`."""

    kind: bytes
    begin: int
    at: int
    end: int


@dataclass(slots=True)
class _Items:
    """The content of `meta`. Items by their number: kinds, and where their bytes are."""

    kinds: dict[int, bytes] = field(default_factory=dict)
    extents: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    metadata: list[int] = field(default_factory=list)  # where the kinds of such items stand


@dataclass(slots=True)
class _Cursor:
    """Reads one number after the other."""

    data: bytes
    at: int

    def number(self, size: int) -> int:
        """The next one, of `size` bytes."""
        self.at += size
        return _number(self.data, self.at - size, size)


def is_avif(data: bytes) -> bool:
    """Whether the file says that it is one."""
    return data[4:8] == b"ftyp" and any(brand in data[8 : int.from_bytes(data[:4])] for brand in _BRANDS)


def essence(data: bytes) -> bytes:
    """The file as a still picture without metadata. Raises `Unfit`. Of an animation, the picture that readers without
    animations show."""
    boxes = list(_boxes(data, 0, len(data)))
    if strange := next((box for box in boxes if box.kind not in _TOP), None):
        raise broken("AVIF", f"a box {strange.kind!r} at byte {strange.begin}")
    metas = [box for box in boxes if box.kind == b"meta"]
    if len(metas) != 1:
        raise broken("AVIF", f"{len(metas)} boxes that describe a picture")
    items = _items(data, metas[0])
    if not items.sizes:
        raise broken("AVIF", "no size")
    _check_coded(data, items, max(width * height for width, height in items.sizes))
    return _without(data, boxes, items)


def _boxes(data: bytes, at: int, end: int) -> Iterator[_Box]:
    for _ in range(MAX_PARTS):
        if at == end:
            return
        begin, size, kind = at, _number(data, at, 4), data[at + 4 : at + 8]
        at += 8
        if size == 1:
            size, at = _number(data, at, 8), at + 8
        until = begin + size if size else end
        if until > end:
            raise cut_short("AVIF", data)
        if until < at or len(kind) < 4:
            raise broken("AVIF", f"a box of {size} bytes at byte {begin}")
        yield _Box(kind, begin, at, until)
        at = until
    raise broken("AVIF", f"more than {MAX_PARTS} boxes")


def _items(data: bytes, meta: _Box) -> _Items:
    items = _Items()
    inner = {box.kind: box for box in _boxes(data, meta.at + 4, meta.end)}
    if iinf := inner.get(b"iinf"):
        _read_kinds(data, iinf, items)
    if iloc := inner.get(b"iloc"):
        _read_places(_Cursor(data, iloc.at), inner.get(b"idat"), items)
    if iprp := inner.get(b"iprp"):
        _read_sizes(data, iprp, items)
    return items


def _read_kinds(data: bytes, iinf: _Box, items: _Items) -> None:
    at = iinf.at + (8 if _number(data, iinf.at, 1) else 6)
    for box in _boxes(data, at, iinf.end):
        wide = 4 if _number(data, box.at, 1) == 3 else 2
        number, place = _number(data, box.at + 4, wide), box.at + 4 + wide + 2
        items.kinds[number] = data[place : place + 4]
        if items.kinds[number] in _METADATA:
            items.metadata.append(place)


def _read_sizes(data: bytes, iprp: _Box, items: _Items) -> None:
    for ipco in (box for box in _boxes(data, iprp.at, iprp.end) if box.kind == b"ipco"):
        for ispe in (box for box in _boxes(data, ipco.at, ipco.end) if box.kind == b"ispe"):
            items.sizes.append((_number(data, ispe.at + 4, 4), _number(data, ispe.at + 8, 4)))


def _read_places(cursor: _Cursor, idat: _Box | None, items: _Items) -> None:
    version, _, sizes = cursor.number(1), cursor.number(3), cursor.number(2)
    offset_size, length_size, base_size, index_size = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    wide, parts = 4 if version == 2 else 2, 0
    for _ in range(cursor.number(wide)):
        number, method = cursor.number(wide), cursor.number(2) & 15 if version else 0
        _, base, count = cursor.number(2), cursor.number(base_size), cursor.number(2)
        parts += count
        if method > 1 or (method and not idat) or parts > MAX_PARTS:
            raise broken("AVIF", f"an item of {count} parts, stored by method {method}")
        base += idat.at if method and idat else 0
        for _ in range(count):
            cursor.number(index_size if version else 0)
            items.extents.setdefault(number, []).append((base + cursor.number(offset_size), cursor.number(length_size)))


def _check_coded(data: bytes, items: _Items, pixels: int) -> None:
    """The AV1 data of all items together is not much larger than the picture."""
    pictures = [number for number, kind in items.kinds.items() if kind == _PICTURE]
    places = [_places(data, items.extents.get(number, ())) for number in pictures]
    if not places:
        raise broken("AVIF", "no picture")
    if sum(end - begin for each in places for begin, end in each) > len(data):
        raise broken("AVIF", "items that share their data")
    coded = sum(av1.largest(b"".join(data[begin:end] for begin, end in each)) for each in places)
    if coded > max(_MOST_CODED * pixels, _LEAST_CODED):
        raise broken("AVIF", f"{coded} pixels of data for a picture of {pixels}")


def _places(data: bytes, extents: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The beginning and end of each of an item's parts. A part without a length ends with the file."""
    places = [(offset, offset + length if length else len(data)) for offset, length in extents]
    if any(not begin <= end <= len(data) for begin, end in places):
        raise cut_short("AVIF", data)
    return places


def _without(data: bytes, boxes: list[_Box], items: _Items) -> bytes:
    """The data without some boxes and items: they get a kind that decoders skip, and keep their positions."""
    kept = bytearray(data)
    kept[8 : boxes[0].end] = kept[8 : boxes[0].end].replace(b"avis", b"avif")  # the brand of what `moov` describes
    for box in boxes:
        if box.kind in (b"moov", b"uuid"):
            kept[box.begin + 4 : box.begin + 8] = b"free"
    for place in items.metadata:
        kept[place : place + 4] = b"skip"
    return bytes(kept)


def _number(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise cut_short("AVIF", data)
    return int.from_bytes(data[at : at + size])
