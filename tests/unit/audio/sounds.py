"""Tones, and files with tones in them."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from typing import Any

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

HZ = 300  # of every tone


def tone(seconds: float, rate: int = 16_000, peak: float = 0.3) -> NDArray[np.float32]:
    """A sine."""
    return (peak * np.sin(2 * np.pi * HZ * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def encoded(
    seconds: float = 1.0, rate: int = 16_000, channels: int = 1, form: str = "WAV", subtype: str = "PCM_16"
) -> bytes:
    """A file with the tone in every channel."""
    samples = np.stack([tone(seconds, rate)] * channels, 1)
    return written(samples, rate, form, subtype)


def written(samples: NDArray[np.float32], rate: int = 16_000, form: str = "WAV", subtype: str = "PCM_16") -> bytes:
    """A file with these samples."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def wav_claiming(rate: int, data_bytes: int | None = None) -> bytes:
    """A second of 16-bit audio whose header says something else."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes((tone(1) * 32_767).astype("<i2").tobytes())
    forged = bytearray(file.getvalue())
    forged[24:28] = struct.pack("<I", rate)
    if data_bytes is not None:
        forged[40:44] = struct.pack("<I", data_bytes)
    return bytes(forged)


def opus_packets(samples: NDArray[np.float32], channels: int = 1) -> list[bytes]:
    """Packets of 20 ms, from samples at 48 kHz."""
    layout = "mono" if channels == 1 else "stereo"
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format, encoder.bit_rate = 48_000, layout, "s16", 32_000
    integers = np.repeat((samples * 32_767).astype(np.int16), channels)
    packets = []
    for start in range(0, len(integers) - 960 * channels + 1, 960 * channels):
        frame = av.AudioFrame.from_ndarray(integers[None, start : start + 960 * channels], "s16", layout)
        frame.sample_rate, frame.pts = 48_000, start // channels
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    return packets + [bytes(packet) for packet in encoder.encode(None)]


def is_tone(audio: NDArray[np.float32], hz: float = HZ, within: float = 2.0) -> bool:
    """Whether the loudest frequency of audio at 16 kHz is that of the tone."""
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
    return bool(abs(spectrum.argmax() * 16_000 / len(audio) - hz) <= within)


def hours_of_silence(hours: float, claimed_s: float | None = None) -> bytes:
    """Ogg Opus: pages of 60 packets, each of them 2 bytes long and 60 ms of silence. `claimed_s`: how long it says it
    is."""
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 0, 48_000, 0, 0)
    pages = [_page(0, 0, [head], 2), _page(0, 1, [b"OpusTags" + struct.pack("<II", 0, 0)], 0)]
    packets, per_page = [b"\x18\x00"] * 60, 60 * 2_880
    count = round(hours * 3_600 * 48_000 / per_page)
    most = count * per_page if claimed_s is None else round(claimed_s * 48_000)
    pages += [_page(min((n + 1) * per_page, most), n + 2, packets, 4 if n == count - 1 else 0) for n in range(count)]
    return b"".join(pages)


def with_pre_skip(file: bytes, samples: int) -> bytes:
    """An Ogg Opus file that says that so many samples at its beginning are not to be played."""
    head = bytearray(file[:47])
    head[38:40], head[22:26] = struct.pack("<H", samples), bytes(4)
    head[22:26] = struct.pack("<I", _crc(head))
    return bytes(head) + file[47:]


def from_a_running_stream(file: bytes, seconds: float) -> bytes:
    """An Ogg Opus file whose first sample is that of a stream that has run for so long."""
    pages, at = [], 0
    while at < len(file):
        segments = file[at + 26]
        size = 27 + segments + sum(file[at + 27 : at + 27 + segments])
        page = bytearray(file[at : at + size])
        granule = struct.unpack_from("<q", page, 6)[0]
        if granule > 0:  # the headers have 0
            struct.pack_into("<q", page, 6, granule + round(seconds * 48_000))
            page[22:26] = bytes(4)
            page[22:26] = struct.pack("<I", _crc(page))
        pages.append(bytes(page))
        at += size
    return b"".join(pages)


def muxed(
    container: str, codec: str, seconds: float = 1, rate: int = 48_000, *, piped: bool = False, **options: str
) -> bytes:
    """A tone as FFmpeg writes it. `piped`: to an output that cannot go back, as a browser's recorder has it."""
    return samples_muxed(tone(seconds, rate), rate, container, codec, piped=piped, **options)


def samples_muxed(
    samples: NDArray[np.float32], rate: int, container: str, codec: str, *, piped: bool = False, **options: str
) -> bytes:
    """Samples as FFmpeg writes them."""
    kept = io.BytesIO()
    out: Any = _Pipe(kept) if piped else kept
    with av.open(out, "w", format=container, options=options) as file:
        stream: Any = file.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray((samples * 32_767).astype(np.int16)[None], "s16", "mono")
        frame.sample_rate, frame.pts = rate, 0
        for each in (*av.AudioResampler(stream.format.name, "mono", rate).resample(frame), None):
            file.mux(stream.encode(each))
    return kept.getvalue()


class _Pipe:
    def __init__(self, out: io.BytesIO):
        self.write = out.write


def cover_picture(side: int) -> bytes:
    """An ID3 tag with a black PNG of 3 bytes a pixel."""
    packer = zlib.compressobj()
    rows = b"".join(packer.compress(bytes(3 * side + 1)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")]
    png = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    content = b"\0image/png\0\x03\0\x89PNG\r\n\x1a\n" + png
    frame = b"APIC" + struct.pack(">I", len(content)) + bytes(2) + content
    return b"ID3\x03\0\0" + bytes(len(frame) >> shift & 127 for shift in (21, 14, 7, 0)) + frame


def _page(granule: int, number: int, packets: list[bytes], flags: int) -> bytes:
    lacing = bytes(len(packet) for packet in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, granule, 1, number, 0, len(lacing)) + lacing
    page = bytearray(head + b"".join(packets))
    page[22:26] = struct.pack("<I", _crc(page))
    return bytes(page)


def _table() -> list[int]:
    table = []
    for byte in range(256):
        remainder = byte << 24
        for _ in range(8):
            remainder = (remainder << 1 ^ (0x04C11DB7 if remainder & 0x80000000 else 0)) & 0xFFFFFFFF
        table.append(remainder)
    return table


_CRC = _table()


def _crc(page: bytes | bytearray) -> int:
    crc = 0
    for byte in page:
        crc = (crc << 8 & 0xFFFFFFFF) ^ _CRC[crc >> 24 ^ byte]
    return crc


def ogg_with_tags(file: bytes, count: int, encoder: bytes = b"x") -> bytes:
    """An Ogg Opus file with so many tags in place of its own."""
    at = file.index(b"OggS", 4)
    after = file.index(b"OggS", at + 4)
    tags = b"".join(struct.pack("<I", 6) + b"%04x=v" % number for number in range(count))
    packet = b"OpusTags" + struct.pack("<I", len(encoder)) + encoder + struct.pack("<I", count) + tags
    lacing = bytes([255] * (len(packet) // 255) + [len(packet) % 255])
    pages, begin = [], 0
    for first in range(0, len(lacing), 255):
        part = lacing[first : first + 255]
        head = struct.pack("<4sBBq4sIIB", b"OggS", 0, int(first > 0), 0, file[14:18], 1 + first // 255, 0, len(part))
        page = bytearray(head + part + packet[begin : begin + sum(part)])
        page[22:26] = struct.pack("<I", _crc(page))
        pages.append(bytes(page))
        begin += sum(part)
    return file[:at] + b"".join(pages) + file[after:]


def lists_in_webm(file: bytes, name: bytes) -> bytes:
    """A WebM with a list of this name, of 16 bytes of nothing, before its audio."""
    segment, cluster = file.index(b"\x18\x53\x80\x67") + 4, file.index(b"\x1f\x43\xb6\x75")
    added = name + b"\x90\xec\x8e" + bytes(14)
    size = int.from_bytes(file[segment + 1 : segment + 8]) + len(added)
    return file[:segment] + b"\x01" + size.to_bytes(7) + file[segment + 8 : cluster] + added + file[cluster:]


def tags_in_mp4(file: bytes, count: int, *, wide: bool = False) -> bytes:
    """An MP4 with so many boxes in one for tags. `wide`: the length of that one has 64 bits."""
    at = file.index(b"moov") - 4
    size = int.from_bytes(file[at : at + 4])
    boxes = struct.pack(">I4s", 8, b"skip") * (count - 1)
    length = struct.pack(">I4sQ", 1, b"udta", len(boxes) + 16) if wide else struct.pack(">I4s", len(boxes) + 8, b"udta")
    added = length + boxes
    moov = struct.pack(">I", size + len(added)) + file[at + 4 : at + size] + added
    return file[:at] + moov + file[at + size :]
