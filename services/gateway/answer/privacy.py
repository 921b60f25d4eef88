"""The guard's checks of one request, and their findings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from services.gateway.guard.checks import Checks
from services.runtime.security.private_data import Names


@dataclass(slots=True)
class Privacy:
    """`checks`: None where nothing is looked for. `guarding`: whether the guard still looks; nothing leaves before it
    is done. `private`: the request may hold what is private, so no other caller may share anything of it. `names` stand
    for what is private, the same in the whole prompt."""

    checks: Checks | None = None
    guarding: bool = False
    private: bool = False
    names: Names = field(default_factory=Names)

    @property
    def looked_at_also(self) -> Collection[str]:
        """Which of the application's own words the guard looks through: `system`, `prefix`, `tools`."""
        return self.checks.settings.also if self.checks else ()
