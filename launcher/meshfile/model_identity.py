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
# Options that change no answer: stored answers outlive a change of them.
_OF_OPERATION = {
    *("connect_timeout_ms", "read_timeout_ms", "idle_timeout_ms", "warm_every_ms", "max_connections", "http_version"),
    *("ca_file", "max_event_bytes", "max_answer_bytes", "cpu_kvcache_space_gib"),
    *("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens"),
}


def identity_of(model: Model) -> str:
    """A digest of where a model is, of its files as far as sizes and times show, and of the engine's options that may
    change an answer, such as a revision. Empty where it is not here yet."""
    if model.local:
        inputs = list(_files(model.local))
        if not inputs:
            return ""
    else:
        inputs = [model.engine_used, model.model, model.hub or "", *sorted(model.url)]
    if options := {name: value for name, value in model.options.items() if name not in _OF_OPERATION}:
        inputs.append(json.dumps(options, sort_keys=True))
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:_DIGITS]


def _files(folder: Path) -> Iterator[str]:
    for file in sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names):
        with suppress(OSError):  # it has gone meanwhile: a download's
            stat = file.stat()
            yield f"{file.relative_to(folder)} {stat.st_size} {stat.st_mtime_ns}"
