"""Recordings become 16 kHz mono, or are refused by field, limit and value."""

from __future__ import annotations

import asyncio
import struct
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.audio.audio_decoding import DecodedRecording, Decoding, RecordingLimits
from services.audio.audio_formats import FORMATS
from services.audio.recordings import RecordingDecoder, gathered
from services.runtime.errors import InvalidInput
from tests.examples import examples
from tests.unit.audio.sounds import encoded, hours_of_silence, is_tone, muxed, tone, wav_claiming, written

LIMITS = RecordingLimits(max_duration_s=60, max_pcm_bytes=64 * 1024 * 1024)
CORPUS = {
    "wav": encoded(0.5),
    "wav float": encoded(0.5, subtype="FLOAT"),
    "wav µ-law stereo": encoded(0.5, 8_000, 2, subtype="ULAW"),
    "wav extensible": encoded(0.5, 48_000, 8, "WAVEX"),
    "flac": encoded(0.5, 44_100, 2, "FLAC"),
    "flac 24 bit": encoded(0.5, 16_000, 1, "FLAC", "PCM_24"),
    "mp3": encoded(0.5, 44_100, 2, "MP3", "MPEG_LAYER_III"),
    "opus": encoded(0.5, 48_000, 1, "OGG", "OPUS"),
    "webm": muxed("webm", "libopus", 0.5),
    "m4a": muxed("ipod", "aac", 0.5),
    "mp4 in fragments": muxed("mp4", "aac", 0.5, movflags="frag_keyframe+empty_moov"),
}


def decode(data: bytes, limits: RecordingLimits = LIMITS) -> DecodedRecording:
    decoding = Decoding(data, limits)
    while decoding.step():
        pass
    return decoding.recording()


def refusal(data: bytes, limits: RecordingLimits = LIMITS) -> str:
    """The error message for such a recording; it always names the field."""
    with pytest.raises(InvalidInput) as caught:
        decode(data, limits)
    assert caught.value.metadata["field"] == "data"
    return caught.value.message


def is_second_of_tone(recording: DecodedRecording) -> bool:
    length_is_right = abs(recording.duration_s - 1) < 0.02
    audio = recording.audio
    return (
        length_is_right and is_tone(audio[2_000:-2_000]) and abs(float(np.abs(audio[2_000:-2_000]).max()) - 0.3) < 0.05
    )


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 2, 8])
@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_every_rate_and_number_of_channels_decodes_to_the_same_sound(form: str, rate: int, channels: int):
    recording = decode(encoded(1, rate, channels, form))
    assert (recording.format, recording.rate_hz, recording.channels) == (form, rate, channels)
    assert is_second_of_tone(recording)
    assert recording.audio.dtype == np.float32
    assert recording.audio.ndim == 1


ID3 = b"ID3\x03\x00\x00" + bytes([0, 0, 8, 0]) + bytes(1024)
NOTE = b"LIST" + struct.pack("<I", 5) + b"INFO!\0"  # of odd length, and padded
WRITTEN = {
    **{each: encoded(1, subtype=each) for each in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32")},
    **{each: encoded(1, subtype=each) for each in ("FLOAT", "DOUBLE", "ULAW", "ALAW")},
    **{f"to a pipe, {length:#x}": wav_claiming(16_000, length) for length in (0, 0xFFFFFFFF, 0x7FFFFFFF)},
    "chunks before the samples": encoded(1)[:36] + NOTE + encoded(1)[36:],
    "an ID3 tag before an MP3": ID3 + encoded(1, 16_000, 1, "MP3", "MPEG_LAYER_III"),
    "an ID3 tag before a FLAC": ID3 + encoded(1, form="FLAC"),
    "a browser's recording in WebM": muxed("webm", "libopus", piped=True),
    "words behind an MP3": encoded(1, 16_000, 1, "MP3", "MPEG_LAYER_III") + b"LYRICSBEGININD0000200000031LYRICS200",
}


@pytest.mark.parametrize("how", WRITTEN)
def test_every_encoding_of_a_file_decodes_to_the_same_sound(how: str):
    assert is_second_of_tone(decode(WRITTEN[how]))


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 2])
def test_mp3_of_every_rate_decodes_to_the_same_sound(rate: int, channels: int):
    recording = decode(encoded(1, rate, channels, "MP3", "MPEG_LAYER_III"))
    assert (recording.format, recording.rate_hz, recording.channels) == ("MP3", rate, channels)
    assert is_second_of_tone(recording)


def test_channels_are_mixed_to_their_mean():
    left = tone(1)
    assert np.abs(decode(written(np.stack([left, -left], 1))).audio).max() < 0.001


def flipped(data: bytes) -> bytes:
    """With another bit in the middle."""
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def counting(data: bytes, box: bytes, at: int) -> bytes:
    """With sixty million as the number of samples in a box of an MP4."""
    start = data.index(box) + len(box) + at
    return data[:start] + struct.pack(">I", 60_000_000) + data[start + 4 :]


def with_float(wrong: float) -> bytes:
    return written(np.concatenate([tone(0.2), np.array([wrong], np.float32), tone(0.2)]), subtype="FLOAT")


REFUSED = {
    "no recording, whatever its name": (b"hello, I am song.mp3", f"{FORMATS}, got bytes that begin 68656c6c"),
    "another format": (encoded(0.1, form="AIFF"), f"{FORMATS}, got AIFF"),
    "no byte": (b"", "data: at least 1 byte, got none"),
    "no sample": (encoded(0), "at least one sample"),
    "a rate beyond the limits": (encoded(0.1, 192_000), "a sample rate of 8000 to 48000 Hz, got 192000 Hz"),
    **{f"forged, {rate} Hz": (wav_claiming(rate), "data: a ") for rate in (0, 1, 7_999, 48_001, 4_000_000_000)},
    "Vorbis": (encoded(0.5, form="OGG", subtype="VORBIS"), "Opus, got vorbis"),
    "ADPCM": (encoded(0.5, subtype="IMA_ADPCM"), "A-law samples, got adpcm"),
    "more channels than Opus is trusted with": (encoded(0.5, 48_000, 8, "OGG", "OPUS"), "1 to 2 channels, got 8"),
    "more channels than a WAV is trusted with": (encoded(0.5, 16_000, 9), "1 to 8 channels, got 9"),
    **{
        f"{name} cut off": (CORPUS[name][: len(CORPUS[name]) * 2 // 3], "data: ")
        for name in ("wav", "wav float", "flac", "opus", "m4a", "mp4 in fragments")
    },
    "a FLAC checksum": (flipped(encoded(1, 48_000, 2, "FLAC")), "1.00 s, as it says of itself, got 0.9"),
    "another codec in WebM": (muxed("matroska", "aac"), "WEBM/OPUS with Opus, got aac"),
    "another codec in MP4": (muxed("mp4", "libopus"), "M4A with AAC, got "),
    "an M4A with one number for many samples": (counting(CORPUS["m4a"], b"stsz", 8), "at most 1000000 samples, got"),
    "a fragment with one number for many samples": (
        counting(CORPUS["mp4 in fragments"], b"trun", 4),
        "at most 1000000 samples, got",
    ),
    "a compressed index": (CORPUS["m4a"].replace(b"free", b"cmov"), "an M4A that is not compressed"),
    "an Ogg checksum": (flipped(encoded(5, 48_000, 1, "OGG", "OPUS")), "5.00 s, as it says of itself"),
    **{str(wrong): (with_float(wrong), "numbers of at most 8") for wrong in (np.nan, np.inf, -np.inf, 32_000.0)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_decoded_whole_is_refused(name: str):
    data, message = REFUSED[name]
    assert message in refusal(data)


def test_an_mp3_that_was_cut_off_is_decoded_to_its_end():
    whole = encoded(2, 16_000, 1, "MP3", "MPEG_LAYER_III")
    recording = decode(whole[: len(whole) // 2])
    assert 0.5 < recording.duration_s < 1.2
    assert is_tone(recording.audio)


def test_floats_beyond_full_scale_are_clipped():
    assert np.abs(decode(written(tone(0.5, peak=1.5), subtype="FLOAT")).audio).max() == 1


def test_hours_of_silence_in_a_small_file_are_refused_before_they_are_decoded():
    file = hours_of_silence(2)
    assert len(file) < 500_000
    decoding_begins = RecordingLimits(max_duration_s=3_600, max_pcm_bytes=2**40)
    assert refusal(file, decoding_begins) == "data: at most 3600 s, got 7200.0 s"


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(RecordingLimits(20, 2**40), "20 s"), (RecordingLimits(1e6, 4_000_000), "4000000 bytes of PCM")],
)
def test_a_file_that_lies_about_its_length_is_refused_by_what_comes(limits: RecordingLimits, limit: str):
    file = hours_of_silence(0.1, claimed_s=1)
    assert f"at most {limit}" in refusal(file, limits)


@pytest.mark.parametrize("name", CORPUS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_damaged_bytes_are_audio_or_refused(name: str, data: st.DataObject):
    damaged = bytearray(CORPUS[name])
    for _ in range(data.draw(st.integers(0, 8), "flips")):
        at = data.draw(st.integers(0, min(len(damaged), 400) - 1) | st.integers(0, len(damaged) - 1), "at")
        damaged[at] = data.draw(st.integers(0, 255), "byte")
    end = data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)), "end")
    _audio_or_refused(bytes(damaged[:end]))


@given(head=st.sampled_from([b"", *(file[:60] for file in CORPUS.values())]), tail=st.binary(max_size=3_000))
@settings(max_examples=examples(200), deadline=None)
def test_random_bytes_are_audio_or_refused(head: bytes, tail: bytes):
    _audio_or_refused(head + tail)


def _audio_or_refused(data: bytes) -> None:
    recording = _outcome(data)
    if isinstance(recording, InvalidInput):
        assert recording.metadata["field"] == "data"
        return
    assert np.isfinite(recording.audio).all()
    assert np.abs(recording.audio).max() <= 1
    assert recording.duration_s <= LIMITS.max_duration_s + 1


def _outcome(data: bytes) -> DecodedRecording | InvalidInput:
    try:
        return decode(data)
    except InvalidInput as refused:
        return refused


async def test_files_take_turns_at_the_decoder():
    decoder = RecordingDecoder(RecordingLimits(600, 2**40))
    long, short = encoded(300), encoded(1)
    running = asyncio.create_task(decoder.decode(long))
    recording = await decoder.decode(short)
    assert is_second_of_tone(recording)
    assert not running.done()
    assert abs((await running).duration_s - 300) < 0.1
    await decoder.close()


async def test_decoding_stops_when_the_caller_cancels():
    decoder = RecordingDecoder(RecordingLimits(3_600, 2**40))
    running = asyncio.create_task(decoder.decode(encoded(300)))
    await decoder.decode(encoded(0.1))
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    await decoder.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decoder")]


async def test_a_file_is_bounded_while_it_comes_in():
    seen = 0

    async def endless():
        nonlocal seen
        while True:
            seen += 1
            yield bytes(1_000)

    with pytest.raises(InvalidInput, match="data: at most 10000 bytes, got 11000 bytes or more"):
        await gathered(endless(), 10_000)
    assert seen == 11
