"""Runs several services in one process: `python -m services` reads from its standard input which ones."""

from __future__ import annotations

import sys

from services.runtime.process import orders
from services.runtime.process.config import RefusedSettings
from services.runtime.process.lifetime import allow_many_connections, keep_to_oneself, to_the_end
from services.runtime.process.logs import log_what_ends_us, setup_logging
from services.runtime.process.together import run

NAME = "hedgerow"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def main() -> None:
    """Serve what the first order says, and what later ones do."""
    keep_to_oneself()
    allow_many_connections()
    try:
        members = orders.first()
    except (RefusedSettings, ValueError) as refused:
        print(refused, file=sys.stderr)
        raise SystemExit(2) from None
    setup_logging(NAME, min((each.settings.log_level for each in members), key=_LEVELS.index))
    log_what_ends_us()
    to_the_end(run(NAME, members, orders.follow))


if __name__ == "__main__":
    main()
