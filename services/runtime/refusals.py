"""Checks settings of services, each with its own environment.

`python -m services.runtime.refusals` reads `[["gateway", {"HEDGEROW_GATEWAY_GRACE_MS": "-1"}], …]` from its standard
input, because arguments are no place for secrets. It writes, as JSON and in the same order, the lines with which each
service would refuse its settings. One process checks all services, because importing the settings takes far longer than
reading them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from services.runtime.explain import settings_class
from services.runtime.process.config import RefusedSettings, read


def refusals(environments: Iterable[tuple[str, Mapping[str, str]]]) -> list[list[str]]:
    """The lines of refusals for each (service, variables to add to this process's environment). Empty for a service
    that is not installed, or whose settings cannot be read for another reason: its start shows that."""
    return [_refused(service, environment) for service, environment in environments]


def _refused(service: str, environment: Mapping[str, str]) -> list[str]:
    try:
        with with_environment(environment):
            read(settings_class(service), [], prog=f"python -m services.{service}")
    except RefusedSettings as refused:
        return str(refused).splitlines()
    except Exception:
        return []
    return []


@contextmanager
def with_environment(added: Mapping[str, str]) -> Iterator[None]:
    """Add variables to `os.environ` inside the block, for Python only: setenv(3) is unsafe in a process with threads,
    which may read the environment meanwhile."""
    before = os.environ
    os.environ = {**before, **added}  # type: ignore[assignment]  # noqa: B003  # readers need only a mapping
    try:
        yield
    finally:
        os.environ = before  # noqa: B003


def main() -> None:
    """Read the list from standard input, and write the answer."""
    with redirect_stdout(sys.stderr):  # output of imports is no part of the answer
        answer = refusals(json.load(sys.stdin))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
