"""Readiness: a gateway is ready once enough of its models and all required services have served.

It stays ready. A gateway whose models fail later answers with typed errors; if readiness ended, an edge would remove
all gateways at once, because they have the same models.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.start import Start

_log = logging.getLogger(__name__)


class Readiness:
    """`models`: how many of the fleet's models must have served; `services`: the start of each required service."""

    def __init__(self, fleet: Fleet, models: int, services: Mapping[Literal["vision", "audio"], Start]):
        self._fleet, self._services = fleet, services
        self._models = min(models, len(fleet.chat))
        self._ready = False

    def missing(self) -> list[str]:
        """The kinds of services that have not served yet (`llm`, `vision`, `audio`); empty once the gateway is
        ready."""
        if self._ready:
            return []
        served = sum(pool.served for pool in self._fleet.chat)
        missing = ["llm"] if served < self._models else []
        missing += [name for name, start in self._services.items() if not start.served]
        self._ready = not missing
        return missing

    async def wait(self) -> None:
        """Return once the gateway is ready."""
        with self._fleet.notice.listening() as changed:
            if missing := self.missing():
                _log.info("not ready before these have served: %s", ", ".join(self._named(missing)))
            while self.missing():
                await changed.wait()
                changed.clear()

    def _named(self, missing: list[str]) -> list[str]:
        """The missing services for operators, with the models' names."""
        models = f"{self._models} of the models {', '.join(pool.model for pool in self._fleet.chat)}"
        return [models if name == "llm" else name for name in missing]
