"""Copies of the demo's `.pt2` with code in them: torch 2.13 alone runs each as soon as it loads it."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

Members = dict[str, bytes]
_GRAPH, _WEIGHTS = "model/models/model.json", "model/data/weights/model_weights_config.json"
_CONSTANTS = "model/data/constants/model_constants_config.json"


class _Runs:
    """Unpickled, it has made the file `mark`."""

    def __init__(self, mark: Path):
        self._command = f"touch {mark}"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self._command,)


def in_sample_inputs(members: Members, mark: Path) -> None:
    """torch unpickles them without limits when it cannot with them."""
    members["model/data/sample_inputs/model.pt"] = _saved(_Runs(mark))


def in_a_weight(members: Members, mark: Path) -> None:
    """A weight that its description calls pickled."""
    described = json.loads(members[_WEIGHTS])
    first = next(iter(described["config"].values()))
    first["use_pickle"] = True
    members[f"model/data/weights/{first['path_name']}"] = _saved(_Runs(mark))
    members[_WEIGHTS] = json.dumps(described).encode()


def in_an_opaque_constant(members: Members, mark: Path) -> None:
    """An object of whatever class, which goes to `pickle.loads`."""
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    members[_CONSTANTS] = json.dumps({"config": {"constant": entry}}).encode()
    members["model/data/constants/opaque_obj_0"] = pickle.dumps(_Runs(mark))


def in_weights_of_the_old_kind(members: Members, mark: Path) -> None:
    """All weights as one pickle, as torch wrote them until 2.8."""
    members["model/data/weights/model.pt"] = _saved(_Runs(mark))


def in_an_expression(members: Members, mark: Path) -> None:
    """A size, which sympy evaluates."""
    graph = members[_GRAPH].decode()
    size = json.dumps("Symbol('s40', positive=True, integer=True)")
    assert size in graph
    evil = json.dumps(f"__import__('os').system('touch {mark}')")
    members[_GRAPH] = graph.replace(size, evil, 1).encode()


HOSTILE: tuple[Callable[[Members, Path], None], ...] = (
    in_sample_inputs,
    in_a_weight,
    in_an_opaque_constant,
    in_weights_of_the_old_kind,
    in_an_expression,
)


def write(honest: Path, file: Path, change: Callable[[Members, Path], None], mark: Path) -> Path:
    """`honest` with `change` made to it, as `file`. When it is loaded without care, `mark` exists."""
    with ZipFile(honest) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members, mark)
    with ZipFile(file, "w", ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def _saved(value: object) -> bytes:
    import torch  # takes two seconds, of every worker's if it were above

    out = io.BytesIO()
    torch.save((value,), out)
    return out.getvalue()
