"""A service whose environment may give its fixed settings: `python -m bench.fixed_given services.cache`. Measurements
start services so, because some compare another value of one with its own."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping

from pydantic import BaseModel

from services.runtime.process import fixed


def take(cls: type[BaseModel], given: Mapping[str, object], at: str = "") -> None:
    """Refuse nothing: in place of `fixed.refuse`."""


def main() -> None:
    """Run the service that the first argument names."""
    fixed.refuse = take
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
