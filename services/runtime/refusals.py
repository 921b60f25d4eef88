"""The settings that services would refuse, each in an environment of its own.

`python -m services.runtime.refusals` reads `[["gateway", {"HEDGEROW_GATEWAY_GRACE_MS": "-1"}], …]` from its input, so
that no argument holds a secret, and writes as JSON, for each in turn, the lines that the service itself would end with.
One process reads the settings of all: to import what reads them takes far longer than to read them.
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
    """Of (service, what is added to this process's environment for it). Nothing of a service that is not installed, nor
    of one whose settings cannot be read for another reason: its start shows that."""
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
    """This process's environment with what is `added`, inside the block, for Python alone: setenv(3) is not safe in a
    process with threads, which may read it meanwhile."""
    before = os.environ
    os.environ = {**before, **added}  # type: ignore[assignment]  # noqa: B003  # a mapping, which is all that readers need
    try:
        yield
    finally:
        os.environ = before  # noqa: B003


def main() -> None:
    """Answer what is asked."""
    with redirect_stdout(sys.stderr):  # whatever an import prints is no part of the answer
        answer = refusals(json.load(sys.stdin))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
