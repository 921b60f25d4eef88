"""Keeps whether requests to a provider fail, for operators. Logs when that begins and ends, but not each request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from services.llm.engine import Outage
from services.llm.errors import EngineDown, ProviderAway, ProviderRefused
from services.runtime.security.secrets import Url

_log = logging.getLogger(__name__)


class Outages:
    """Of the model `name` at `url`, which is shown without its credentials."""

    def __init__(self, name: str, url: str):
        self._url = str(Url(url))
        self._model = f"model {name} at {self._url}"
        self.now: Outage | None = None
        self.away = False  # whether there is no connection, so that a connection ends the outage

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note that the provider failed, where the body raises that. Refused requests are the caller's failures."""
        try:
            yield
        except (EngineDown, ProviderRefused) as error:
            self.began(error.outline, away=isinstance(error, ProviderAway))
            raise

    def began(self, reason: str, *, away: bool = False) -> None:
        self.away = away
        if self.now is None:
            self.now = Outage(self._url, reason)
            _log.warning("%s: %s", self._model, reason)

    def connected(self) -> None:
        """There is a connection. A provider that answered with errors may still do so."""
        if self.away:
            self.ended()

    def ended(self) -> None:
        """A request has succeeded."""
        if self.now:
            self.now, self.away = None, False
            _log.info("%s answers again", self._model)
