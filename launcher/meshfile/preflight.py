"""What the services' own code says of the settings that a mesh file gives them, before any of them starts.

Each service's settings are read by a process that ends at once (`services.runtime.explain`), as the service itself
reads them; what it refuses is told at its place in the file.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Mapping, Sequence

from launcher.meshfile.parts import Part
from launcher.meshfile.problems import Problem, Steps, in_our_words
from launcher.meshfile.reading import Read

_REFUSED = 2  # its exit code
_AT_ONCE = 2
_SAID = re.compile(r"\.(options|settings)\.")


async def refused(read: Read, told: Iterable[tuple[Part, Mapping[str, str]]]) -> list[Problem]:
    """What services that are told this would refuse; nothing where they are not installed, as where manifests are
    written alone. Of a file that has problems, only what it says itself: the rest may come of what was left out."""
    places = asyncio.Semaphore(_AT_ONCE)
    first = {part.name: (part, environment) for part, environment in told}  # replicas are told the same
    complaints = await asyncio.gather(*(_complaints(*each, places) for each in first.values()))
    found = [
        _problem(read, part, complaint)
        for (part, _), some in zip(first.values(), complaints, strict=True)
        for complaint in some
    ]
    return [problem for problem in found if not read.problems or _SAID.search(problem.path)]


async def _complaints(part: Part, environment: Mapping[str, str], places: asyncio.Semaphore) -> list[str]:
    command = (sys.executable, "-m", "services.runtime.explain", part.service)
    async with places:
        asked = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env={**os.environ, **environment}
        )
        try:
            _, said = await asked.communicate()
        except asyncio.CancelledError:
            asked.kill()
            await asked.wait()
            raise
    return said.decode(errors="replace").splitlines() if asked.returncode == _REFUSED else []


def _problem(read: Read, part: Part, complaint: str) -> Problem:
    """`python -m services.llm: vllm.max_model_len: …` at `models.fast.options.max_model_len`."""
    _, _, told = complaint.partition(": ")
    setting, _, message = told.partition(": ")
    steps = setting.removeprefix(part.prefixed("")).replace("__", ".").split(".")
    place = _place(part, steps)
    named = "" if str(place[-1]).lower() == steps[-1].lower() else f"{setting} of {part.name}: "
    return read.marked.problem(place, named + in_our_words(message))


def _place(part: Part, steps: Sequence[str]) -> Steps:
    if origin := part.origins.get(steps[0].upper()):
        return (*origin, *(int(step) if step.isdigit() else step for step in steps[1:]))
    return part.at
