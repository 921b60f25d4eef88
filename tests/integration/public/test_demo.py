"""`hedgerow demo`: its questions, asked of the mesh that `hedgerow up` has started here, which is the demo's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hedgerow_cli.app import app
from launcher import processes, progress
from launcher.demo import SERVICES
from launcher.mesh import HTTP_OFFSET
from launcher.processes import ServiceSpec
from launcher.supervisor import Change
from tests.integration.running_up import Up

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Running:
    """A process of the mesh."""

    pid: int

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


def test_the_demo_gets_the_answers_it_expects(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def started(
        specs: Sequence[ServiceSpec], _: Path, shown: progress.Progress
    ) -> AsyncIterator[SimpleNamespace]:
        assert {spec.name: spec.address for spec in specs} == {name: up.address(name) for name in SERVICES}
        for spec in specs:
            shown(Change(spec.name, "serving"))
        yield SimpleNamespace(
            services=[SimpleNamespace(spec=spec, process=Running(up.pid(spec.name))) for spec in specs]
        )

    first = int(up.target.partition(":")[2])
    ports = [*range(first, first + len(SERVICES)), first + HTTP_OFFSET]
    monkeypatch.setattr(processes, "free_ports", lambda count: ports[:count])
    monkeypatch.setattr(progress, "started", started)
    demo = CliRunner().invoke(app, ["demo", "Who wrote Hamlet?"])
    assert demo.exit_code == 0, demo.output
    assert "› Who wrote Hamlet?" in demo.output
