"""Keeps whether requests to a provider fail, for operators. Logs when that begins and ends, but not each request: a
provider that fails now and then has a line a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from services.llm.engine import Outage
from services.llm.errors import EngineBusy, EngineDown, ProviderAway
from services.runtime.deadline import Clock
from services.runtime.errors import Misconfigured, ServiceError
from services.runtime.line_limit import LineLimit
from services.runtime.security.secrets import Url

_log = logging.getLogger(__name__)


class Outages:
    """Outages of the model `name` at `url`, which is shown without its credentials."""

    def __init__(self, name: str, url: str, clock: Clock = time.monotonic):
        self._url = str(Url(url))
        self._model = f"model {name} at {self._url}"
        self._lines, self._logged = LineLimit(clock), False  # whether the log says that it fails
        self.now: Outage | None = None
        self.reached = False  # whether there has ever been a connection: its address is right

    @property
    def away(self) -> bool:
        """Whether there is no connection, so that a connection ends the outage."""
        return self.now is not None and self.now.away

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note an error that the body raises."""
        try:
            yield
        except ServiceError as error:
            self.note(error)
            raise

    def note(self, error: ServiceError) -> None:
        """Note that the provider failed, where `error` says so. Refused requests are the caller's failures."""
        if isinstance(error, EngineBusy | EngineDown | Misconfigured):
            self.began(error.outline, away=isinstance(error, ProviderAway))

    def began(self, reason: str, *, away: bool = False) -> None:
        first, self.now = self.now is None, Outage(self._url, reason, away)
        if first:
            self._logged = self._lines.take(reason) is not None
            if self._logged:
                _log.warning("%s: %s", self._model, reason)

    def connected(self) -> None:
        """There is a connection. A provider that answered with errors may still do so."""
        self.reached = True
        if self.away:
            self.ended()

    def ended(self) -> None:
        """A request has succeeded."""
        self.reached = True
        if self.now:
            self.now = None
            if self._logged:
                _log.info("%s answers again", self._model)
