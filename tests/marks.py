"""Which marks a test has, which follow from what it uses, and which tests share a worker of pytest-xdist.

A fixture that starts something says so with `starts`, and whoever uses it is marked. A test that starts something by
itself is marked by hand; one that is not marked with what it starts fails (`unmarked`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])
MARKS = {
    "redis": "starts a real Redis",
    "engine": "loads a model that answers: vLLM, Whisper, a vision network (the cache's small embedder does not count)",
    "mesh": "starts several services",
    "paused": "runs on a loop whose time moves only when nothing else is left to do; it serves no I/O and no threads",
}
_FOLDERS = ("integration", "fault", "contract", "unit", "containers")  # those whose tests take longest first
# The fault tests that measure run last, when nothing else is left to do (`quiet.py`). They wait more than they work, so
# there are two lanes of them: these files, and all others, which share a mesh. With three, budgets of half a second are
# missed now and then.
_LANES = {
    "measuring beside": (
        *("failing_backend", "hostile_requests", "no_oracle", "silent_backend", "tenants", "through_the_mesh"),
    ),
}
_LANE_OF = {f"tests/fault/test_{what}.py": lane for lane, files in _LANES.items() for what in files}
_MEASURING = "measuring"
# The others: they count answers, bytes and connections, and ask nobody how long it took.
_COUNTING = {
    f"tests/fault/test_{what}.py"
    for what in (
        *("cache_memory", "closed_by_default", "identity", "malformed", "markers", "memory", "model_files", "pictures"),
        *("late_control_plane", "provider_connections", "proxy", "report", "single_flight", "token_quotas"),
        "unknown_words",
    )
}
# Beside those that measure run these, at a lower priority: they compute, and ask no clock.
_COMPUTING = (
    *("tests/contract/", "tests/integration/adversarial/", "tests/integration/test_vllm_parsers.py"),
    *("tests/unit/cache/", "tests/unit/vision/test_pictures.py"),
)
_TOGETHER = ("tests/integration/real_mesh/", "tests/integration/public/")  # the files of each share a mesh
_LAST = 100  # and those that compute after it: the lanes are taken first
_ENGINES = {"services.llm", "services.vision", "services.audio"}
_started: list[str] = []  # what the running test has started: modules, `redis-server`, `hedgerow up`


def starts(*marks: str) -> Callable[[F], F]:
    """Below a fixture's own decorator: the marks of everybody who uses it."""

    def note(function: F) -> F:
        function.__starts__ = marks  # type: ignore[attr-defined]
        return function

    return note


def mark(items: list[pytest.Item]) -> None:
    """Add the marks that follow from fixtures."""
    for item in items:
        for fixture in _fixtures(item):
            for name in fixture.func.__starts__:
                item.add_marker(name)


def measures(nodeid: str) -> bool:
    """Whether it is a fault test that takes times, and wants the machine to itself."""
    file = nodeid.partition("::")[0]
    return file.startswith("tests/fault/") and file not in _COUNTING


def computes(nodeid: str) -> bool:
    """Whether it is one that may run beside a test that measures."""
    return nodeid.startswith(_COMPUTING)


def together(nodeid: str) -> str:
    """Whose tests run in one worker, one after the other: those of a file, of the folder `_TOGETHER`, or of a lane."""
    file = nodeid.partition("::")[0]
    if measures(nodeid):
        return _LANE_OF.get(file, _MEASURING)
    return next((folder for folder in _TOGETHER if file.startswith(folder)), file)


def order(items: list[pytest.Item]) -> None:
    """Bring what takes longest to the front, and to the end what shall have the machine to itself, with what may run
    beside it. Raises UsageError where what is started once for several files would be started by several workers."""
    groups: dict[str, str] = {}
    ranks: dict[str, int] = {}
    for item in items:
        name, rank = together(item.nodeid), _rank(item)
        ranks[name] = min(ranks.get(name, rank), rank)
        for fixture in _fixtures(item, "session", "package"):
            if groups.setdefault(f"{fixture.baseid} {fixture.argname}", name) != name:
                raise pytest.UsageError(f"{item.nodeid} uses {fixture.argname}: name its file in tests/marks.py")
    places = {name: place for place, name in enumerate(sorted(ranks, key=ranks.__getitem__))}
    items.sort(key=lambda item: places[together(item.nodeid)])


def _rank(item: pytest.Item) -> int:
    if together(item.nodeid) in (_MEASURING, *_LANES):
        return _LAST
    if computes(item.nodeid):
        return _LAST + 1
    folder = item.nodeid.split("/")[1]
    heavy = 0 if _has(item, "engine") else 1 if _has(item, "mesh") else 2
    return 10 * (_FOLDERS.index(folder) // 2) + heavy


def _fixtures(item: pytest.Item, *scopes: str) -> Iterator[Any]:
    """Those that it uses and that start something; of any scope where none is named."""
    definitions = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    for *_, fixture in definitions.values():
        if hasattr(fixture.func, "__starts__") and (not scopes or fixture.scope in scopes):
            yield fixture


def _has(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None


def begin() -> None:
    """Before a test: forget what the one before has started."""
    _started.clear()


def unmarked(item: pytest.Item) -> set[str]:
    """The marks that it lacks for what it has started."""
    needed = {"engine"} if _ENGINES & set(_started) else set()
    needed |= {"redis"} if "redis-server" in _started else set()
    needed |= {"mesh"} if len(set(_started) - {"redis-server"}) > 1 else set()
    return {name for name in needed if not _has(item, name)}


def _note(event: str, told: tuple[Any, ...]) -> None:
    """What `python -m services.…` or Redis is started, by whatever library."""
    if event != "subprocess.Popen":
        return
    _, command, _, environment = told
    words = [os.path.basename(os.fsdecode(word)) for word in command] if isinstance(command, (list, tuple)) else []
    for name in words:
        note(name, environment or {})


def note(name: str, environment: Mapping[str, str]) -> None:
    """The running test has started this: a module of ours, a program, or something else that is nobody's concern."""
    if name == "services.llm" and not is_vllm(name, environment):
        name = "a provider"  # is asked over HTTP; nothing is loaded
    if re.fullmatch(r"services\.(?!runtime)\w+|redis-server|a provider", name):
        _started.append(name)


def is_vllm(module: str, environment: Mapping[str, str]) -> bool:
    """Whether a service that is told this loads vLLM."""
    return module == "services.llm" and environment.get("HEDGEROW_LLM_ENGINE") not in ("openai", "anthropic")


sys.addaudithook(_note)
