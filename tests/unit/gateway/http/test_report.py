"""The report in an answer's headers."""

from __future__ import annotations

import pytest

from hedgerow.chat.v1 import chat_pb2
from services.gateway.http.report import report, short
from tests.unit.gateway.answer.scene import MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish

pytestmark = pytest.mark.paused


@pytest.mark.parametrize(
    ("sampling", "verdict", "reason"),
    [
        ({}, "miss", ""),
        ({"temperature": 0.0}, "miss", ""),
        ({"temperature": 0.7}, "bypass", "sampled"),
        ({"temperature": 0.7, "seed": 1}, "miss", "sampled"),  # looked up as this very question alone
    ],
)
async def test_a_client_without_a_stored_answer_gets_the_reason(
    sampling: dict[str, float], verdict: str, reason: str
) -> None:
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(finish("Paris.")))
    final = await scene.final(sampling=chat_pb2.Sampling(**sampling))
    headers = dict(short(final))
    assert headers[b"x-hedgerow-cache"] == verdict.encode()
    assert headers.get(b"x-hedgerow-cache-reason", b"") == reason.encode()
    assert report(final)["cache"].get("reason", "") == reason
