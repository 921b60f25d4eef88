"""What a model is, beside its name: answers of another one of the same name are not its own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from launcher.meshfile.models import Model

_DIGITS = 16


def identity_of(model: Model) -> str:
    """A digest of where a model is, of its files as far as sizes and times show, and of the engine's options, such as a
    revision. Empty where it is not here yet."""
    if model.local:
        inputs = list(_files(model.local))
        if not inputs:
            return ""
    else:
        inputs = [model.engine_used, model.model, model.hub or "", *sorted(model.url)]
    if model.options:
        inputs.append(json.dumps(model.options, sort_keys=True))
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:_DIGITS]


def _files(folder: Path) -> Iterator[str]:
    for file in sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names):
        with suppress(OSError):  # it has gone meanwhile: a download's
            stat = file.stat()
            yield f"{file.relative_to(folder)} {stat.st_size} {stat.st_mtime_ns}"
