"""Transcripts as subtitles: SubRip (`srt`) and WebVTT (`vtt`), with a cue for each segment.

Source: https://www.w3.org/TR/webvtt1/. SubRip has no standard; it differs in the decimal mark, and numbers its cues.
"""

from __future__ import annotations

from collections.abc import Iterable

from hedgerow.audio.v1 import audio_pb2

_ARROW = "-->"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;"})  # of WebVTT


def subtitles(segments: Iterable[audio_pb2.Segment], how: str) -> str:
    """The segments as a file; `how` is `srt` or `vtt`."""
    if how == "srt":
        cues = [f"{number}\n{_cue(each, ',', each.text)}" for number, each in enumerate(segments, 1)]
    else:
        cues = ["WEBVTT\n", *(_cue(each, ".", each.text.translate(_ESCAPES)) for each in segments)]
    return "\n".join(cues)


def _cue(segment: audio_pb2.Segment, mark: str, text: str) -> str:
    """An empty line would end it early, and an arrow in its text would be read as another cue's times."""
    line = " ".join(text.split()).replace(_ARROW, "->")
    return f"{_time(segment.start_s, mark)} {_ARROW} {_time(segment.end_s, mark)}\n{line}\n"


def _time(seconds: float, mark: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, left = divmod(whole, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{left:02}{mark}{milliseconds:03}"
