"""Live audio becomes 16 kHz mono, wherever its messages end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.audio.frames import AudioForm, Encoding, Frames, open_frames
from services.runtime.errors import InvalidInput
from services.runtime.limits import SPEECH_BYTES
from tests.examples import examples
from tests.unit.audio.sounds import is_tone, opus_packets, tone

S16, F32, OPUS = Encoding.S16, Encoding.F32, Encoding.OPUS


def pcm(samples: NDArray[np.float32], encoding: Encoding, channels: int = 1) -> bytes:
    """Interleaved, the same in every channel."""
    scaled = samples if encoding is F32 else np.round(samples * 32_767)
    return np.repeat(scaled, channels).astype(encoding.value).tobytes()


def decoded(frames: Frames, messages: list[bytes]) -> NDArray[np.float32]:
    return np.concatenate([*(frames.push(message) for message in messages), frames.flush()])


def outcome(frames: Frames, messages: list[bytes]) -> NDArray[np.float32] | InvalidInput:
    try:
        return decoded(frames, messages)
    except InvalidInput as refused:
        return refused


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("encoding", [S16, F32])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 24_000, 44_100, 48_000])
def test_every_pcm_format_decodes_to_the_same_sound(encoding: Encoding, rate: int, channels: int):
    audio = decoded(
        open_frames(AudioForm(encoding, rate, channels)), in_pieces(pcm(tone(1, rate), encoding, channels), 1_111)
    )
    assert abs(len(audio) - 16_000) < 200
    assert audio.dtype == np.float32
    middle = audio[2_000:-2_000]
    assert is_tone(middle)
    assert abs(float(np.abs(middle).max()) - 0.3) < 0.01


@given(sizes=st.lists(st.integers(0, 700), max_size=40))
@settings(deadline=None, max_examples=examples(50))
def test_messages_may_end_in_the_middle_of_a_sample(sizes: list[int]):
    data = pcm(tone(0.1), S16, 2)
    messages, at = [], 0
    for size in sizes:
        messages.append(data[at : at + size])
        at += size
    messages.append(data[at:])
    audio = decoded(open_frames(AudioForm(S16, 16_000, 2)), messages)
    np.testing.assert_allclose(audio, tone(0.1), atol=1e-4)


def test_a_sample_that_is_never_completed_is_left_out():
    assert len(decoded(open_frames(AudioForm(F32, 16_000, 1)), [b"\0\0\0"])) == 0


def test_a_live_resampler_holds_back_little():
    frames, rate = open_frames(AudioForm(S16, 8_000, 1)), 8_000
    out = sum(len(frames.push(pcm(tone(0.02, rate), S16))) for _ in range(50))
    assert out / 16_000 > 1 - 0.04


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e30, 3e38, 20_000.0])
@pytest.mark.parametrize("channels", [1, 2])
def test_floats_that_are_no_audio_are_refused(wrong: float, channels: int):
    samples = tone(0.02)
    samples[7] = wrong
    with pytest.raises(InvalidInput, match="audio: samples that are numbers of at most 8"):
        open_frames(AudioForm(F32, 16_000, channels)).push(pcm(samples, F32, channels))


def test_a_message_that_is_too_long_is_refused():
    with pytest.raises(
        InvalidInput, match=f"audio: at most {SPEECH_BYTES} bytes in a message, got {SPEECH_BYTES + 1} bytes"
    ):
        open_frames(AudioForm(S16, 16_000, 1)).push(bytes(SPEECH_BYTES + 1))
    with pytest.raises(InvalidInput, match="audio: at most 61440 bytes in a message"):
        open_frames(AudioForm(OPUS, 48_000, 1)).push(bytes(61_441))


@given(data=st.binary(max_size=2_000), encoding=st.sampled_from([S16, F32]), channels=st.integers(1, 2))
@settings(deadline=None, max_examples=examples(100))
def test_any_bytes_are_audio_or_refused(data: bytes, encoding: Encoding, channels: int):
    frames = open_frames(AudioForm(encoding, 44_100, channels))
    audio = outcome(frames, in_pieces(data, 333))
    if isinstance(audio, InvalidInput):
        assert audio.metadata["field"] == "audio"
        assert encoding is F32
    else:
        assert np.isfinite(audio).all()
        assert not len(audio) or np.abs(audio).max() <= 1


@pytest.mark.parametrize("channels", [1, 2])
def test_opus_packets_are_decoded(channels: int):
    audio = decoded(open_frames(AudioForm(OPUS, 48_000, channels)), opus_packets(tone(1, 48_000), channels))
    assert abs(len(audio) - 16_000) < 800
    assert is_tone(audio[2_000:-2_000])
    assert abs(float(np.abs(audio[2_000:-2_000]).max()) - 0.3) < 0.05


def test_an_empty_message_is_no_end_of_an_opus_stream():
    packets = opus_packets(tone(0.5, 48_000))
    with_gaps = [message for packet in packets for message in (b"", packet)]
    whole = decoded(open_frames(AudioForm(OPUS, 48_000, 1)), packets)
    np.testing.assert_array_equal(whole, decoded(open_frames(AudioForm(OPUS, 48_000, 1)), with_gaps))


@pytest.mark.parametrize("bad", [b"\xff", b"\x03", b"\xfc" + bytes(3_000), bytes(61_440)])
def test_a_packet_that_is_not_opus_is_refused(bad: bytes):
    frames = open_frames(AudioForm(OPUS, 48_000, 1))
    frames.push(opus_packets(tone(0.1, 48_000))[0])
    with pytest.raises(InvalidInput, match=r"audio: one Opus packet \(RFC 6716\), got \d+ bytes that are none"):
        frames.push(bad)


@given(st.lists(st.binary(max_size=300), max_size=8))
@settings(deadline=None, max_examples=examples(150))
def test_any_packets_are_audio_or_refused(packets: list[bytes]):
    frames = open_frames(AudioForm(OPUS, 48_000, 2))
    audio = outcome(frames, packets)
    assert isinstance(audio, InvalidInput) or np.isfinite(audio).all()


@given(st.data())
@settings(deadline=None, max_examples=examples(60))
def test_packets_with_flipped_bits_are_audio_or_refused(data: st.DataObject):
    frames = open_frames(AudioForm(OPUS, 48_000, 1))
    for packet in opus_packets(tone(0.1, 48_000)):
        damaged = bytearray(packet)
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(0, 255))
        try:
            assert len(frames.push(bytes(damaged))) <= 16_000 * 0.15
        except InvalidInput:
            return
