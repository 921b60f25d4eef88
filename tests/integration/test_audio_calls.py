"""Recordings that a scripted audio service does not write down in time."""

from __future__ import annotations

import pytest

from hedgerow.channel import open_channel
from services.gateway.errors import Unfinished
from services.gateway.upstream.media import AudioCalls
from services.runtime.errors import TooLate
from tests.integration.scripted import Hold
from tests.integration.scripted_audio import recording, segment, serve_audio


@pytest.mark.parametrize(("before_it_is_silent", "had_read"), [(0, False), (2, True)])
async def test_a_service_that_has_read_the_recording_is_not_silent(before_it_is_silent: int, had_read: bool) -> None:
    async with serve_audio() as audio, open_channel(audio.target) as channel:
        audio.script = [*recording(segment(0, "Long."))[:before_it_is_silent], Hold()]
        with pytest.raises(TooLate, match="audio: DEADLINE_EXCEEDED") as late:
            await AudioCalls(channel).transcribe(b"RIFF", 0.5, ())
    assert isinstance(late.value, Unfinished) is had_read
