"""The formats of recordings: how a file's bytes show them, and damage that FFmpeg would not report."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.runtime.errors import InvalidInput

FORMATS = "WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A"
_PIPED = 0x7FFFF000  # a WAV's data length from here on means: unknown to its writer
_PCM = ("pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le", "pcm_mulaw", "pcm_alaw")
_MAX_BOXES = 16_384  # of an MP4, at its top; a recorder that writes as it records adds two a second
_MAX_SAMPLES = 1_000_000  # of an MP4, in all tracks: an hour of sound has 170,000, of a film 400,000
_COUNTS = {b"stsz": 12, b"stz2": 12, b"trun": 8}  # where the number of samples stands, from the table's name on
_OTHERS = {
    b"#!AMR": "AMR",
    b"caff": "CAF",
    b"FORM": "AIFF",
    b"\x30\x26\xb2\x75": "WMA",
    b"RF64": "RF64",
    b"MThd": "MIDI",
}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A format. `demuxer` and `codecs` are FFmpeg's names, `samples` ours for errors. `gap_s`: missing audio that is
    tolerated; more means damage. `check` raises InvalidInput."""

    name: str
    demuxer: str
    codecs: tuple[str, ...]
    samples: str
    max_channels: int = 2
    max_tracks: int = 1_000
    gap_s: float = float("inf")
    check: Callable[[bytes], None] = lambda _: None


def find(data: bytes) -> AudioFormat:
    """The format of a file. Raises InvalidInput."""
    if not data:
        raise InvalidInput("data", "at least 1 byte", "none")
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _WAV
    if data[:4] == b"fLaC":
        return _FLAC
    if data[:4] == b"OggS":
        return _OGG
    if data[:4] == b"\x1aE\xdf\xa3":
        return _WEBM
    if data[4:8] == b"ftyp":
        return _MP4
    if data[:3] == b"ID3" and data[10 + _tag_bytes(data) :][:4] == b"fLaC":
        return _FLAC
    # An MPEG frame begins with 11 bits set, a version, and layer III (01).
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return _MP3
    other = next((name for magic, name in _OTHERS.items() if data.startswith(magic)), "")
    raise InvalidInput("data", FORMATS, other or f"bytes that begin {data[:4].hex()}")


def _tag_bytes(data: bytes) -> int:
    """The bytes of an ID3 tag behind its head: seven bits in each of four bytes."""
    return sum((byte & 127) << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=False))


def _refuse_cut_wav(data: bytes) -> None:
    """Raise InvalidInput for a WAV whose samples are fewer than its header says."""
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"data":
            there = len(data) - at - 8
            if there < size < _PIPED:
                raise InvalidInput("data", f"{size} bytes of samples, as its header says", f"{there} bytes")
            return
        at += 8 + size + size % 2


def _refuse_cut_ogg(data: bytes) -> None:
    """Raise InvalidInput unless the data is a sequence of whole Ogg pages (RFC 3533, 6)."""
    at = 0
    while at < len(data):
        segments = data[at + 26] if len(data) > at + 26 else 0
        size = 27 + segments + sum(data[at + 27 : at + 27 + segments])
        if data[at : at + 4] != b"OggS" or at + size > len(data):
            raise InvalidInput("data", "whole Ogg pages", f"{len(data) - at} bytes that are none, after byte {at}")
        at += size


def _refuse_large_mp4(data: bytes) -> None:
    """Raise InvalidInput for an MP4 whose tables of samples take more memory than the file: one number there stands for
    any number of samples (ISO/IEC 14496-12, 8.7.3 and 8.8.8). Everything but the samples themselves is searched, since
    FFmpeg reads tables at other places than their own too."""
    samples = 0
    for begin, end in _boxes_beside_samples(data):
        if data.find(b"cmov", begin, end) >= 0:
            raise InvalidInput("data", "an M4A that is not compressed", "a compressed index")
        for name, count in _COUNTS.items():
            for at in _found(name, data, begin, end):
                samples += max(1, int.from_bytes(data[at + count : at + count + 4]))
                if samples > _MAX_SAMPLES:
                    raise InvalidInput("data", f"an M4A with at most {_MAX_SAMPLES} samples", samples)


def _found(name: bytes, data: bytes, at: int, end: int) -> Iterator[int]:
    """Where a name stands. One search after the other: a regular expression would hold the interpreter's lock for half
    a second in a file of 32 MB."""
    while (at := data.find(name, at, end)) >= 0:
        yield at
        at += len(name)


def _boxes_beside_samples(data: bytes) -> Iterator[tuple[int, int]]:
    """(begin, end) of the boxes at the top of an MP4 that hold no samples. Raises InvalidInput for too many."""
    at = 0
    for _ in range(_MAX_BOXES):
        size = int.from_bytes(data[at : at + 4])
        if size == 1:  # it stands behind the box's kind
            size = int.from_bytes(data[at + 8 : at + 16])
        end = len(data) if size < 8 else min(at + size, len(data))  # 0: to the end of the file
        if data[at + 4 : at + 8] != b"mdat":
            yield at, end
        if end == len(data):
            return
        at = end
    raise InvalidInput("data", f"an M4A with at most {_MAX_BOXES} boxes", "more")


_WAV = AudioFormat("WAV", "wav", _PCM, "PCM, float, µ-law or A-law samples", max_channels=8, check=_refuse_cut_wav)
_FLAC = AudioFormat("FLAC", "flac", ("flac",), "audio", max_channels=8, gap_s=0.001)
_MP3 = AudioFormat("MP3", "mp3", ("mp3", "mp3float"), "audio")
_OGG = AudioFormat("OGG/OPUS", "ogg", ("opus", "libopus"), "Opus", gap_s=0.05, check=_refuse_cut_ogg)
_WEBM = AudioFormat(
    "WEBM/OPUS", "matroska", ("opus", "libopus"), "Opus", max_tracks=1
)  # others may be compressed a thousandfold
_MP4 = AudioFormat("M4A", "mov", ("aac",), "AAC", check=_refuse_large_mp4)
