"""A scripted control plane: it says of the mesh what a test wants to see shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hedgerow.control.v1 import control_pb2_grpc
from tests.integration.scripted import Scripted, serving
from tests.unit.cli.meshes import a_mesh


class ScriptedControl(Scripted, control_pb2_grpc.ControlServiceServicer):
    """Plays a response, or a refusal."""

    GetMesh = Scripted.reply


@asynccontextmanager
async def serve_control() -> AsyncIterator[ScriptedControl]:
    """A scripted control plane on a free loopback port; its `target` says which."""
    async with serving(ScriptedControl(), control_pb2_grpc.add_ControlServiceServicer_to_server) as control:
        control.script = [a_mesh()]
        yield control
