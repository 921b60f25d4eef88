"""FFmpeg gets a recording's audio without its tags, or with few: its time grows with the square of their number."""

from __future__ import annotations

import struct

import pytest

from services.audio.audio_decoding import Decoding
from services.audio.audio_formats import find
from tests.unit.audio.sounds import encoded, lists_in_webm, muxed, ogg_with_tags, tags_in_mp4
from tests.unit.audio.test_audio_decoding import LIMITS, decode, is_second_of_tone, refusal

WAV, FLAC, MP3 = encoded(1), encoded(1, form="FLAC"), encoded(1, 16_000, 1, "MP3", "MPEG_LAYER_III")
OPUS, WEBM, M4A = encoded(1, 48_000, 1, "OGG", "OPUS"), muxed("webm", "libopus"), muxed("ipod", "aac")
INFO = b"LIST" + struct.pack("<I", 14) + b"INFOINAM" + struct.pack("<I", 2) + b"x\0"
ID3 = b"ID3\x03\x00\x00" + bytes([0, 0, 0, 20]) + b"TXXX" + struct.pack(">I", 10) + bytes(12)
COMMENT = bytes([4, 0, 0, 20]) + struct.pack("<III", 0, 1, 8) + b"title=xy"

TAGGED = {
    "a list before a WAV's samples": (WAV[:36] + INFO + WAV[36:], WAV),
    "a list behind them": (WAV + INFO, WAV),
    "an ID3 tag in a WAV": (WAV[:36] + b"id3 " + struct.pack("<I", len(ID3)) + ID3 + WAV[36:], WAV),
    "ID3 tags before an MP3": (ID3 * 3 + MP3, MP3),
    "an ID3 tag with a footer": (ID3[:5] + b"\x10" + ID3[6:] + bytes(10) + MP3, MP3),
    "an ID3 tag before a FLAC": (ID3 + FLAC, FLAC),
    "comments in a FLAC": (FLAC[:4] + bytes([0]) + FLAC[5:42] + COMMENT * 3 + FLAC[42:], FLAC),
}


def essence(data: bytes) -> bytes:
    return find(data).essence(data)


@pytest.mark.parametrize("how", TAGGED)
def test_tags_are_cut_out(how: str):
    tagged, plain = TAGGED[how]
    assert essence(tagged) == essence(plain)
    assert is_second_of_tone(decode(tagged))


@pytest.mark.parametrize("name", ["12 54 c3 67", "10 43 a7 70", "1c 53 bb 6b"])
def test_a_list_in_a_webm_is_unknown_to_ffmpeg(name: str):
    data = lists_in_webm(WEBM, bytes.fromhex(name))
    assert bytes.fromhex(name) not in essence(data)
    assert is_second_of_tone(decode(data))


def test_a_few_tags_are_read():
    assert is_second_of_tone(decode(ogg_with_tags(OPUS, 100)))
    assert abs(decode(tags_in_mp4(M4A, 100)).duration_s - decode(M4A).duration_s) < 0.01


MANY = {
    "tags in an Ogg file": (ogg_with_tags(OPUS, 4_097), "an Ogg file with at most 4096 tags, got 4097"),
    "a long name before them": (ogg_with_tags(OPUS, 1, b"x" * 240), "an encoder's name of at most 239 bytes, got 240"),
    "another stream in an Ogg file": (
        OPUS + OPUS[:14] + b"else" + OPUS[18:28] + b"FishHead" + OPUS[36:],
        "OGG/OPUS with Opus, got 4669736848656164",
    ),
    "tags in an M4A": (tags_in_mp4(M4A, 4_097), "an M4A with at most 4096 tags, got 4097"),
    "tags in an M4A, in a box of 64 bits": (tags_in_mp4(M4A, 4_097, wide=True), "an M4A with at most 4096 tags"),
    "ID3 tags": (ID3 * 16 + MP3, "a recording with at most 16 ID3 tags, got more"),
    "chunks": (WAV[:12] + b"junk\0\0\0\0" * 16_384 + WAV[12:], "a WAV with at most 16384 chunks"),
    "blocks": (FLAC[:4] + bytes([0]) + FLAC[5:42] + b"\x01\0\0\0" * 16_384 + FLAC[42:], "a FLAC with at most 16384"),
    "a FLAC that begins with comments": (FLAC[:4] + COMMENT + FLAC[4:], "begins with a description of 34 bytes"),
    "a FLAC of comments alone": (FLAC[:4] + bytes([0]) + FLAC[5:42] + b"\x84\xff\xff\xff", "a FLAC with audio"),
    "a WAV without samples": (WAV[:36], "a WAV with samples, got none"),
}


@pytest.mark.parametrize("what", MANY)
def test_a_file_with_many_parts_is_refused_before_ffmpeg_reads_it(what: str):
    data, message = MANY[what]
    assert message in refusal(data)


def test_packets_without_audio_do_not_keep_the_decoder():
    frame = b"\xff\xf3\x18\xc0"  # of 36 bytes
    decoding = Decoding((frame + bytes(32)) * 20 + (frame + b"\xff" * 32) * 5_000, LIMITS)
    steps = 1
    while decoding.step():
        steps += 1
    assert steps == 3
    assert decoding.recording().duration_s < 1
