"""Runs services in one process: `python -m services.runtime.process` reads their names and settings from standard
input."""

from __future__ import annotations

import sys

from services.runtime.process import orders, workers
from services.runtime.process.config import RefusedSettings
from services.runtime.process.lifetime import allow_many_connections, keep_to_oneself, to_the_end
from services.runtime.process.logs import log_what_ends_us
from services.runtime.process.together import log, run

NAME = "hedgerow"


def main() -> None:
    """Serve what the first order says, and what later ones do."""
    keep_to_oneself()
    allow_many_connections()
    try:
        first, *others = members = orders.first()
    except (RefusedSettings, ValueError) as refused:
        print(refused, file=sys.stderr)
        raise SystemExit(2) from None
    process = NAME if others else first.name
    log(process, members)
    log_what_ends_us()
    if first.ports_are_claimed:
        workers.end_with_parent(first.settings.grace_ms / 1000)
    to_the_end(run(process, members, orders.follow))


if __name__ == "__main__":
    main()
