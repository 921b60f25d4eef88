"""A mesh of two scripted services in a process of its own, to be killed: it prints their pids when they serve.

`python -m tests.integration.scripted_mesh STATE_DIR`
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from launcher.mesh import Mesh
from launcher.processes import ServiceSpec, free_ports


async def main(state_dir: Path) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    specs = [
        ServiceSpec(f"scripted-{at}", "tests.integration.scripted_service", at, {"SCRIPTED_ADDRESS": at})
        for at in addresses
    ]
    async with Mesh(specs, state_dir) as mesh:
        print(*(service.process.pid for service in mesh.services if service.process), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
