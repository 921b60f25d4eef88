"""The end of a control plane that has a bug."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.control.__main__ import assemble
from services.control.config import ControlSettings
from services.control.mesh import MeshState

_TOPOLOGY = 'services: {cache: {endpoints: [{address: "10.0.0.1:1"}]}}'


async def test_a_control_plane_that_cannot_follow_its_mesh_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(MeshState, "run", fail)
    (topology := tmp_path / "topology.yaml").write_text(_TOPOLOGY)
    with pytest.RaisesGroup(ZeroDivisionError):
        async with assemble(ControlSettings(topology=topology)):
            await asyncio.Event().wait()
