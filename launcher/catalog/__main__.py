"""`python -m launcher.catalog NAME…` pulls models and prints a line for each change. Fails with one line, the last."""

from __future__ import annotations

import signal
import sys

from rich.console import Console

from launcher.catalog.errors import CatalogError
from launcher.catalog.pulling import pull
from launcher.catalog.screen import shown


def main(names: list[str]) -> None:
    """Run the command. SIGTERM ends it and its children, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with shown(Console(highlight=False)) as report:
            pull(names, report)
    except (CatalogError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
