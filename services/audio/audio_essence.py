"""What FFmpeg gets of a recording: a file without its tags, or refused for many of them.

FFmpeg keeps tags in a list, and searches all of it for each one: 40,000 in a FLAC of 0.5 MB took 13 s, and a million
would take hours, in which no other recording is decoded. Tags are cut out where that is simple, and else counted. So
are parts of a file that FFmpeg or these functions walk through one by one, and damage is refused that FFmpeg does not
report.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from services.runtime.errors import InvalidInput

_MAX_TAGS = 4_096  # music has some ten
_PIPED = 0x7FFFF000  # a WAV's data length from here on means: unknown to its writer
_MAX_PARTS = 16_384  # of a WAV, a FLAC or an MP4, at its top; a recorder that writes as it records adds two a second
_MAX_ID3 = 16  # tags before an MP3 or a FLAC, each with any number of fields
_DESCRIPTION = (b"\x00\x00\x00\x22", b"\x80\x00\x00\x22")  # of a FLAC: the head of its first block, as the last one too
_OPUS_TAGS, _CONTIGUOUS = b"OpusTags", 255  # bytes of a packet that no Ogg page divides
# Lists of Matroska: Tags, Chapters and Cues, places to seek to (RFC 9559, 5.1).
_LISTS, _UNKNOWN = (b"\x12\x54\xc3\x67", b"\x10\x43\xa7\x70", b"\x1c\x53\xbb\x6b"), b"\x00"
_MAX_SAMPLES = 1_000_000  # of an MP4, in all tracks: an hour of sound has 170,000, of a film 400,000
_COUNTS = {b"stsz": 12, b"stz2": 12, b"trun": 8}  # where the number of samples stands, from the table's name on
_TAG_BOXES = (b"udta", b"ilst")  # of an MP4


def of_wav(data: bytes) -> bytes:
    """The format and the samples of a WAV. Raises InvalidInput where the samples are fewer than its header says."""
    kept, at = [data[:12]], 12
    for _ in range(_MAX_PARTS):
        if at + 8 > len(data):
            raise InvalidInput("data", "a WAV with samples", "none")
        name, size = struct.unpack_from("<4sI", data, at)
        end = at + 8 + size + size % 2
        if name == b"data":
            there = len(data) - at - 8
            if there < size < _PIPED:
                raise InvalidInput("data", f"{size} bytes of samples, as its header says", f"{there} bytes")
            samples = memoryview(data)[at : end if 0 < size < _PIPED else len(data)]
            return b"".join((*kept, samples))
        if name == b"fmt ":
            kept.append(data[at:end])
        at = end
    raise InvalidInput("data", f"a WAV with at most {_MAX_PARTS} chunks before its samples", "more")


def id3_bytes(data: bytes, at: int = 0) -> int:
    """The length of the ID3 tag at a position (https://id3.org/id3v2.4.0-structure, 3.1); 0 where there is none."""
    if data[at : at + 3] != b"ID3" or len(data) < at + 10:
        return 0
    content = sum((byte & 127) << shift for byte, shift in zip(data[at + 6 : at + 10], (21, 14, 7, 0), strict=True))
    return content + (20 if data[at + 5] & 0x10 else 10)


def without_id3(data: bytes) -> bytes:
    """The file behind its ID3 tags. Raises InvalidInput for too many."""
    at = 0
    for _ in range(_MAX_ID3):
        if not (tag := id3_bytes(data, at)):
            return data[at:]
        at += tag
    raise InvalidInput("data", f"a recording with at most {_MAX_ID3} ID3 tags", "more")


def of_flac(data: bytes) -> bytes:
    """The stream's description and the audio of a FLAC (RFC 9639, 8). Raises InvalidInput."""
    data = without_id3(data)
    if data[4:8] not in _DESCRIPTION:
        raise InvalidInput("data", "a FLAC that begins with a description of 34 bytes", data[4:8].hex() or "nothing")
    at = 4
    for _ in range(_MAX_PARTS):
        head = data[at : at + 4]
        at += 4 + int.from_bytes(head[1:])
        if at > len(data):
            raise InvalidInput("data", "a FLAC with audio", "one that ends before")
        if head[0] & 128:  # the last block before the audio
            return data[:4] + _DESCRIPTION[1] + data[8:42] + data[at:]
    raise InvalidInput("data", f"a FLAC with at most {_MAX_PARTS} blocks before its audio", "more")


def of_ogg(data: bytes) -> bytes:
    """The file. Raises InvalidInput unless it is a sequence of whole Ogg pages (RFC 3533, 6), of Opus alone, with few
    tags (RFC 7845, 5.2)."""
    streams, at = set[bytes](), 0
    while at < len(data):
        segments = data[at + 26] if len(data) > at + 26 else 0
        body = at + 27 + segments
        end = body + sum(data[at + 27 : body])
        if data[at : at + 4] != b"OggS" or end > len(data):
            raise InvalidInput("data", "whole Ogg pages", f"{len(data) - at} bytes that are none, after byte {at}")
        serial, begins = data[at + 14 : at + 18], data[at + 5] & 2
        if (begins or serial not in streams) and not data.startswith(b"OpusHead", body):
            other = "vorbis" if data.startswith(b"vorbis", body + 1) else data[body : body + 8].hex() or "nothing"
            raise InvalidInput("data", "OGG/OPUS with Opus", other)
        streams.add(serial)
        at = end
    _check_tags("an Ogg file", sum(_opus_tags(data)))
    return data


def _opus_tags(data: bytes) -> Iterator[int]:
    """How many tags each list of them has. Raises InvalidInput where that does not stand near the list's beginning."""
    for at in _found(_OPUS_TAGS, data, 0, len(data)):
        name_bytes = int.from_bytes(data[at + 8 : at + 12], "little")
        count_at = 12 + name_bytes
        if count_at + 4 > _CONTIGUOUS:
            raise InvalidInput("data", f"an encoder's name of at most {_CONTIGUOUS - 16} bytes", f"{name_bytes} bytes")
        yield int.from_bytes(data[at + count_at : at + count_at + 4], "little")


def of_webm(data: bytes) -> bytes:
    """The file, in which tags, chapters and cues have names that FFmpeg does not know. They get those wherever they
    stand, because a file's index may name any place. By chance four bytes of audio are such a name once
    in 1.4 GB, and a packet of 20 ms is changed."""
    for name in _LISTS:
        data = data.replace(name, name[:-1] + _UNKNOWN)
    return data


def of_mp4(data: bytes) -> bytes:
    """The file. Raises InvalidInput for one with many tags, or whose tables of samples take more memory than the file:
    one number there stands for any number of samples (ISO/IEC 14496-12, 8.7.3 and 8.8.8). Everything but the samples
    themselves is searched, since FFmpeg reads tables at other places than their own too."""
    samples = tags = 0
    for begin, end in _boxes_beside_samples(data):
        if data.find(b"cmov", begin, end) >= 0:
            raise InvalidInput("data", "an M4A that is not compressed", "a compressed index")
        for name, count in _COUNTS.items():
            for at in _found(name, data, begin, end):
                samples += max(1, int.from_bytes(data[at + count : at + count + 4]))
                if samples > _MAX_SAMPLES:
                    raise InvalidInput("data", f"an M4A with at most {_MAX_SAMPLES} samples", samples)
        for name in _TAG_BOXES:
            for at in _found(name, data, begin, end):
                for _ in _tags_in_box(data, at - 4):
                    tags += 1
                    _check_tags("an M4A", tags)
    return data


def _tags_in_box(data: bytes, at: int) -> Iterator[int]:
    """Where the box itself and each box in it begin."""
    begin, end = next(_boxes(data, at, len(data)))
    yield begin
    wide = int.from_bytes(data[at : at + 4]) == 1
    yield from (begin for begin, _ in _boxes(data, at + (16 if wide else 8), end))


def _boxes_beside_samples(data: bytes) -> Iterator[tuple[int, int]]:
    """(begin, end) of the boxes at the top of an MP4 that hold no samples. Raises InvalidInput for too many."""
    for count, (begin, end) in enumerate(_boxes(data, 0, len(data)), 1):
        if count > _MAX_PARTS:
            raise InvalidInput("data", f"an M4A with at most {_MAX_PARTS} boxes", "more")
        if data[begin + 4 : begin + 8] != b"mdat":
            yield begin, end


def _boxes(data: bytes, at: int, until: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of each box. One of a size below its own header's goes on to the end, as 0 says."""
    while at < until:
        size = int.from_bytes(data[at : at + 4])
        if size == 1:  # it stands behind the box's kind
            size = int.from_bytes(data[at + 8 : at + 16])
        end = until if size < 8 else min(at + size, until)
        yield at, end
        at = end


def _found(name: bytes, data: bytes, at: int, end: int) -> Iterator[int]:
    """Where a name stands. One search after the other: a regular expression would hold the interpreter's lock for half
    a second in a file of 32 MB."""
    while (at := data.find(name, at, end)) >= 0:
        yield at
        at += len(name)


def _check_tags(file: str, count: int) -> None:
    if count > _MAX_TAGS:
        raise InvalidInput("data", f"{file} with at most {_MAX_TAGS} tags", count)
