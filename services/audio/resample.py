"""Mono samples at any rate → 16 kHz, piece by piece."""

from __future__ import annotations

import numpy as np
import soxr

from services.audio.speech import RATE, Audio
from services.runtime.errors import InvalidInput

MAX_PEAK = 8.0  # full scale is 1: beyond this, floats are not audio but integers that were not scaled
_NOTHING: Audio = np.empty(0, np.float32)


class Resampler:
    """Checks samples and brings them to 16 kHz, clipped to -1 to 1.

    `live`: soxr's variable-rate engine, which holds back 13 to 30 ms of audio instead of 37 to 117 ms. Raises
    InvalidInput naming `field` for samples that are not finite or are far beyond full scale.
    """

    def __init__(self, rate_hz: int, field: str, live: bool = False):
        self._field = field
        self._stream = None if rate_hz == RATE else soxr.ResampleStream(rate_hz, RATE, 1, "float32", "HQ", vr=live)

    def push(self, samples: Audio) -> Audio:
        """The output so far, as far as it is certain; it may be empty."""
        if not len(samples):
            return samples
        self._check(samples)
        return self._resample(samples, last=False)

    def flush(self) -> Audio:
        """The rest."""
        return self._resample(_NOTHING, last=True)

    def _resample(self, samples: Audio, last: bool) -> Audio:
        if self._stream:
            samples = self._stream.resample_chunk(samples, last=last)
        clipped: Audio = np.clip(samples, -1.0, 1.0)
        return clipped

    def _check(self, samples: Audio) -> None:
        peak = float(np.abs(samples).max())  # NaN where one is
        if not peak <= MAX_PEAK:
            raise InvalidInput(self._field, f"samples that are numbers of at most {MAX_PEAK:g} (full scale is 1)", peak)
