"""Voice activity: Silero VAD, fed as the audio comes, and the pauses between stretches of speech.

The network is the one that faster-whisper ships (github.com/snakers4/silero-vad, version 6). It looks at frames of
32 ms and takes any number of them in one call; a frame costs about 0.04 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from faster_whisper.vad import get_vad_model
from numpy.typing import NDArray

from services.audio.speech import RATE, Audio

FRAME = 512  # samples
_CONTEXT = 64  # samples before the frame that the network sees again
# After so many frames without speech, 2 s, the network forgets all but the last half second. Silence fills its memory:
# after 20 s of a muted microphone it finds 13% fewer frames of the same speech, after 60 s 26%: sentences are lost.
_FORGETS, _REMEMBERED, _QUIET = 64, 16, 0.1
_SPEECH, _SILENCE = 0.5, 0.35  # between the two, what was goes on
_ONSET_FRAMES = 3  # a click is shorter


class Probabilities:
    """How likely each frame of a stream is speech."""

    def __init__(self) -> None:
        self._session = get_vad_model().session
        self._h = self._c = np.zeros((1, 1, 128), np.float32)
        self._judged, self._most = 0, 0.0  # frames; the highest probability since the last look at it
        self._last = np.empty((0, _CONTEXT + FRAME), np.float32)  # frames
        self._rest = np.zeros(_CONTEXT, np.float32)  # the context, then what did not fill a frame

    def feed(self, audio: Audio) -> NDArray[np.float32]:
        """The probabilities of the frames that this audio completes, one for each; maybe none."""
        audio = np.concatenate((self._rest, audio))
        count = (len(audio) - _CONTEXT) // FRAME
        self._rest = audio[count * FRAME :]
        if not count:
            return np.empty(0, np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(audio, _CONTEXT + FRAME)[::FRAME][:count]
        first = _FORGETS - self._judged % _FORGETS
        return np.concatenate([self._judge(part) for part in np.split(frames, range(first, count, _FORGETS))])

    def _judge(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        probabilities = self._run(frames)
        self._judged += len(frames)
        self._most = max(self._most, float(probabilities.max()))
        self._last = np.concatenate((self._last, frames))[-_REMEMBERED:]
        if self._judged % _FORGETS == 0:  # which depends on the audio alone, and not on its pieces
            if self._most < _QUIET:
                self._h = self._c = np.zeros((1, 1, 128), np.float32)
                self._run(self._last)
            self._most = 0.0
        return probabilities

    def _run(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        state = {"input": np.ascontiguousarray(frames, np.float32), "h": self._h, "c": self._c}
        found, self._h, self._c = self._session.run(None, state)
        return np.asarray(found, np.float32).reshape(-1)


@dataclass(frozen=True, slots=True)
class SpeechTurn:
    """The speaker begins, falls silent for the length of a pause, or is only quiet for the moment. In samples."""

    speaking: bool
    at: int  # where speech begins, or ended


class PauseDetector:
    """Makes turns of probabilities: speech begins with a few sure frames, and ends with `pause_s` of silence."""

    def __init__(self, pause_s: float):
        self._pause = round(pause_s * RATE)
        self.now = 0  # samples judged so far
        self.speaking = False
        self.spoke_at = 0  # the end of the last frame with speech in it
        self._sure = 0

    def push(self, probability: float) -> SpeechTurn | None:
        """The turn that this frame brings, if any."""
        self.now += FRAME
        spoken = probability >= (_SILENCE if self.speaking else _SPEECH)
        self._sure = self._sure + 1 if spoken else 0
        if spoken and (self.speaking or self._sure >= _ONSET_FRAMES):
            self.spoke_at = self.now
            if not self.speaking:
                self.speaking = True
                return SpeechTurn(True, self.now - self._sure * FRAME)
        elif self.speaking and self.now - self.spoke_at >= self._pause:
            self.speaking = False
            return SpeechTurn(False, self.spoke_at)
        return None
