"""The command `hedgerow`, and `python -m hedgerow`.

The command line is a part of the distribution `hedgerow-mesh`, which an extra of `hedgerow` brings. This module finds
it by its entry point, so the SDK imports nothing that is built on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import distribution, version

_EXTRAS = {"up": "proxy", "demo": "demo"}


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 used wrongly, 130 interrupted."""
    if sys.argv[1:] == ["--version"]:  # also without the mesh
        print(f"hedgerow {version('hedgerow')}")
        return
    try:
        run = _command_line()
        run()
    except KeyboardInterrupt:  # while it is imported: its commands handle it themselves
        raise SystemExit(130) from None


def _command_line() -> Callable[[], None]:
    try:
        (command_line,) = distribution("hedgerow-mesh").entry_points.select(group="hedgerow.command_line")
        run: Callable[[], None] = command_line.load()
    except ModuleNotFoundError:  # also where an image has one service of the mesh alone
        extra = _EXTRAS.get("".join(sys.argv[1:2]), "cli")
        raise SystemExit(
            f"hedgerow: the command line is not installed; install it with: pip install 'hedgerow[{extra}]'"
        ) from None
    return run


if __name__ == "__main__":
    main()
