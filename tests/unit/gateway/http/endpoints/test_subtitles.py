"""Transcripts as subtitles."""

from __future__ import annotations

import pytest

from hedgerow.audio.v1 import audio_pb2 as pb
from services.gateway.http.endpoints.subtitles import subtitles

SPOKEN = [
    pb.Segment(start_s=0.0, end_s=1.5, text=" Hello there."),
    pb.Segment(start_s=3599.9996, end_s=3723.0405, text="One --> two\n\nthree, a < b & c."),
]
SRT = """\
1
00:00:00,000 --> 00:00:01,500
Hello there.

2
01:00:00,000 --> 01:02:03,040
One -> two three, a < b & c.
"""
VTT = """\
WEBVTT

00:00:00.000 --> 00:00:01.500
Hello there.

01:00:00.000 --> 01:02:03.040
One -> two three, a &lt; b &amp; c.
"""


@pytest.mark.parametrize(("how", "expected"), [("srt", SRT), ("vtt", VTT)])
def test_each_segment_is_a_cue(how: str, expected: str):
    assert subtitles(SPOKEN, how) == expected


@pytest.mark.parametrize(("how", "expected"), [("srt", ""), ("vtt", "WEBVTT\n")])
def test_silence_has_no_cue(how: str, expected: str):
    assert subtitles([], how) == expected
