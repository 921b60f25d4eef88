"""Files that are used as they are; `model.bin` may come in parts."""

from __future__ import annotations

import shutil
from pathlib import Path

_PART = ".part"


def make(_: str, raw: Path, made: Path, __: str) -> None:
    """Copy every file; parts, `NAME.part1` and so on, are put together in their order."""
    for path in sorted(raw.rglob("*")):
        if path.is_file():
            name, _, number = str(path.relative_to(raw)).rpartition(_PART)
            target = made / (name if number.isdigit() else path.relative_to(raw))
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source, target.open("ab") as out:
                shutil.copyfileobj(source, out, 1024 * 1024)
