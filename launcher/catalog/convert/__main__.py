"""`python -m launcher.catalog.convert RECIPE RAW MADE [FORMAT]`. Fails with one line on stderr."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

_MODULES = {
    "copy": "files",
    "whisper": "files",
    "smollm2": "smollm2",
    "smollm2-int8": "smollm2",
    "efficientnet": "efficientnet",
}


def main(recipe: str, raw: str, made: str, form: str = "") -> None:
    """Run one recipe."""
    module = import_module(f"launcher.catalog.convert.{_MODULES[recipe]}")
    module.make(recipe, Path(raw), Path(made), form)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is needed for this conversion; install it with: pip install 'hedgerow[models]'")
