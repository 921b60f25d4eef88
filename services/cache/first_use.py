"""A part that some requests need: the first of them loads it, on its own thread."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from services.cache.conversion import NoModel
from services.runtime.deadline import Clock
from services.runtime.errors import NotSupported, ServiceError, Unavailable

_FAILED_S = 10.0  # for which a failure is the answer: some loads take seconds to fail
Loaded = TypeVar("Loaded")
_log = logging.getLogger("services.cache")


class FirstUse(Generic[Loaded]):
    """Calls `load` once for all threads, and again some time after it has failed. `name` is for people."""

    def __init__(self, name: str, load: Callable[[], Loaded], clock: Clock = time.monotonic):
        self._name, self._load, self._clock, self._loading = name, load, clock, Lock()
        self._loaded: Loaded | None = None
        self._failure: ServiceError | None = None
        self._again_at = 0.0

    @property
    def is_loaded(self) -> bool:
        """Whether a call returns at once."""
        return self._loaded is not None

    def __call__(self) -> Loaded:
        """Raises `NotSupported` where there is no model, and `Unavailable` where the load fails otherwise."""
        with self._loading:
            if self._loaded is not None:
                return self._loaded
            if self._failure and self._clock() < self._again_at:
                raise copy.copy(self._failure)
            try:
                self._loaded = self._load()
            except Exception as error:
                self._failure, self._again_at = self._typed(error), self._clock() + _FAILED_S
                raise copy.copy(self._failure) from None
            return self._loaded

    def _typed(self, error: Exception) -> ServiceError:
        """The error for callers. The log has the cause, which may name folders of this machine."""
        if isinstance(error, NoModel):
            _log.error("%s", error)
            return NotSupported(error.outline)
        message = f"{self._name} cannot be loaded"
        _log.error("%s", message, exc_info=error)
        return Unavailable(message, retry_delay_s=_FAILED_S)
