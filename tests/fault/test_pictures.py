"""Files that are no pictures, or not the pictures they say they are."""

from __future__ import annotations

import asyncio
import io
import random
import time
import zipfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from PIL import Image

from hedgerow.channel import open_channel
from hedgerow.vision.v1 import vision_pb2, vision_pb2_grpc
from tests.conftest import Start
from tests.fault.memory import forget_peak, peak_mib
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.unit.vision.files import chunk, encoded, gradient, png, size_of_jpeg, with_segment

pytestmark = pytest.mark.timeout(120)
_KINDS = ("PNG", "JPEG", "WEBP")
_GOOD = [encoded(gradient(), kind) for kind in _KINDS]
_MIB = 1024 * 1024
_MEMORY_MIB, _REFUSED_MS = 20, 100
_DECODED = "PNG whose data end before its pixels do"  # only decoding it shows that
_DECODED_MIB, _DECODED_MS = 64, 500


def _archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("run.sh", "true")
    return buffer.getvalue()


def _many_scans() -> bytes:
    progressive = encoded(gradient(), "JPEG", progressive=True)
    last = progressive.rindex(b"\xff\xda")
    return progressive[:-2] + progressive[last:-2] * 500 + b"\xff\xd9"


def _flipped(data: bytes, seed: int) -> bytes:
    changed = bytearray(data)
    changed[random.Random(seed).randrange(8, len(data))] ^= 0xFF
    return bytes(changed)


def _faults() -> dict[str, list[bytes]]:
    """Files by what is wrong with them."""
    return {
        "pixel bomb": [
            png(60_000, 60_000, zlib.compress(b"\0" * 20 * _MIB, 9)),
            png(60_000, 60_000, b""),
            size_of_jpeg(_GOOD[1], 65_000, 65_000),
            encoded(Image.new("1", (16_000, 16_000)), "PNG"),
        ],
        _DECODED: [png(4_000, 3_000, zlib.compress(b"\0" * 20 * _MIB, 1))],
        "JPEG of 500 scans": [_many_scans()],
        "picture that is cut short": [data[: len(data) * share // 8] for data in _GOOD for share in range(8)],
        "picture with something glued on": [data + tail for data in _GOOD for tail in (_archive(), b"<html>", b"\0x")],
        "header that lies": [
            png(4_000, 4_000, zlib.compress(b"\0" * 4_000)),
            size_of_jpeg(_GOOD[1], 3_000, 3_000),
            _GOOD[2][:4] + b"\xff\xff\0\0" + _GOOD[2][8:],
            png(4, 4, zlib.compress(b"\0" * 52), extra=chunk(b"IHDR", b"\0" * 13)),
            with_segment(_GOOD[1], 0xC0, b"\x08\xff\xff\xff\xff\x01\x01\x11\0"),
        ],
        "PNG with a flipped bit": [_flipped(_GOOD[0], seed) for seed in range(32)],
        "random bytes": [b"\x89PNG\r\n\x1a\n" + random.Random(seed).randbytes(2_000) for seed in range(8)]
        + [random.Random(seed).randbytes(2_000) for seed in range(8)],
    }


@pytest.fixture
async def vision(start: Start, models: Path) -> AsyncIterator[tuple[ServiceProcess, Any]]:
    """The vision service with the demo model, warm."""
    process = await start("vision", models_dir=str(models))
    async with open_channel(process.spec.address) as channel:
        stub = vision_pb2_grpc.VisionServiceStub(channel)
        for _ in range(20):
            await _classify(stub, *_GOOD)
        yield process, stub


async def _classify(stub: Any, *images: bytes) -> grpc.StatusCode:
    request = vision_pb2.ClassifyRequest(images=[vision_pb2.Image(data=data) for data in images])
    call = stub.Classify(request, timeout=60)
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_false_picture_is_refused_and_takes_no_memory(
    vision: tuple[ServiceProcess, Any], report: Report, full_size: bool
) -> None:
    process, stub = vision
    for fault, files in _faults().items():
        with report.case(21, fault) as row:
            forget_peak(process)
            before, slowest = peak_mib(process), 0.0
            for _ in range(20 if full_size else 2):
                for data in files:
                    began = time.perf_counter()
                    assert await _classify(stub, data) is grpc.StatusCode.INVALID_ARGUMENT, fault
                    slowest = max(slowest, time.perf_counter() - began)
                    row.tally(failed=1)
            mib, ms = (_DECODED_MIB, _DECODED_MS) if fault == _DECODED else (_MEMORY_MIB, _REFUSED_MS)
            row.measured("memory", peak_mib(process) - before, mib, " MiB", slack=2)
            row.measured("refused after", slowest * 1000, ms)
            assert await _classify(stub, *_GOOD) is grpc.StatusCode.OK
            row.tally(ok=1)


async def test_pictures_as_large_as_may_be_are_decoded_few_at_a_time(
    vision: tuple[ServiceProcess, Any], report: Report
) -> None:
    process, stub = vision
    large = gradient(4_000, 4_000)
    largest = [encoded(large.convert("RGBA"), "PNG"), encoded(large, "JPEG"), encoded(large, "WEBP", method=0)]
    with report.case(21, "15 images of 16 million pixels at once") as row:
        forget_peak(process)
        before = peak_mib(process)
        codes = await asyncio.gather(*(_classify(stub, data) for data in largest * 5))
        assert set(codes) == {grpc.StatusCode.OK}
        row.tally(ok=len(codes))
        row.measured("memory", peak_mib(process) - before, 512, " MiB", slack=1.5)
        assert await _classify(stub, *_GOOD) is grpc.StatusCode.OK
        row.tally(ok=1)
