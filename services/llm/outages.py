"""Logs when requests to a provider begin to fail, and when they succeed again, but not each request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from services.llm.errors import EngineDown, ProviderRefused
from services.runtime.security.secrets import Url

_log = logging.getLogger(__name__)


class Outages:
    """Of the model `name` at `url`, which is logged without its credentials."""

    def __init__(self, name: str, url: str):
        self._model = f"model {name} at {Url(url)}"
        self._lasts = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note that the provider failed, where the body raises that. Refused requests are the caller's failures."""
        try:
            yield
        except (EngineDown, ProviderRefused) as error:
            self.began(error.message)
            raise

    def began(self, reason: str) -> None:
        if not self._lasts:
            self._lasts = True
            _log.warning("%s: %s", self._model, reason)

    def ended(self) -> None:
        """A request has succeeded."""
        if self._lasts:
            self._lasts = False
            _log.info("%s answers again", self._model)
