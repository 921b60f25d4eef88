"""The formats of recordings: how a file's bytes show them, and which codecs, channels and tracks they may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.audio import audio_essence
from services.runtime.errors import InvalidInput

FORMATS = "WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A"
_PCM = ("pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le", "pcm_mulaw", "pcm_alaw")
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
    tolerated; more means damage. `essence`: the bytes that FFmpeg gets; raises InvalidInput."""

    name: str
    demuxer: str
    codecs: tuple[str, ...]
    samples: str
    essence: Callable[[bytes], bytes]
    max_channels: int = 2
    max_tracks: int = 1_000
    gap_s: float = float("inf")


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
    if data[:3] == b"ID3" and data.startswith(b"fLaC", audio_essence.id3_bytes(data)):
        return _FLAC
    # An MPEG frame begins with 11 bits set, a version, and layer III (01).
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return _MP3
    other = next((name for magic, name in _OTHERS.items() if data.startswith(magic)), "")
    raise InvalidInput("data", FORMATS, other or f"bytes that begin {data[:4].hex()}")


_WAV = AudioFormat("WAV", "wav", _PCM, "PCM, float, µ-law or A-law samples", audio_essence.of_wav, max_channels=8)
_FLAC = AudioFormat("FLAC", "flac", ("flac",), "audio", audio_essence.of_flac, max_channels=8, gap_s=0.001)
_MP3 = AudioFormat("MP3", "mp3", ("mp3", "mp3float"), "audio", audio_essence.without_id3)
_OGG = AudioFormat("OGG/OPUS", "ogg", ("opus", "libopus"), "Opus", audio_essence.of_ogg, gap_s=0.05)
_WEBM = AudioFormat(  # other tracks may be compressed a thousandfold
    "WEBM/OPUS", "matroska", ("opus", "libopus"), "Opus", audio_essence.of_webm, max_tracks=1
)
_MP4 = AudioFormat("M4A", "mov", ("aac",), "AAC", audio_essence.of_mp4)
