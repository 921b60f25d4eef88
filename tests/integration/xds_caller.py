"""A caller of a router over `xds:///`, in a process of its own: gRPC reads its xDS bootstrap once in a process' life.

`python -m tests.integration.xds_caller TARGET TLS_DIR` calls until its standard input ends, or until one call has
failed, and prints how calls ended as one JSON object: `{"OK": 812, …, "details": "of the first failure"}`. A line
`ready` comes first, when the first call has been answered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import grpc

from hedgerow.router.v1 import router_pb2, router_pb2_grpc
from services.runtime.security import tls


async def main(target: str, tls_dir: Path) -> None:
    ends: Counter[str] = Counter()
    details, ended = "", asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with tls.dial(tls_dir) as dial, dial(target, "router") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        while not (ended.done() or details):
            try:
                await stub.ListModels(router_pb2.ListModelsRequest(), timeout=10)
            except grpc.aio.AioRpcError as error:
                ends[error.code().name] += 1
                details = error.details() or "none"
            else:
                if not ends:
                    print("ready", flush=True)
                ends["OK"] += 1
            await asyncio.sleep(0.002)
    print(json.dumps({**ends, "details": details}), flush=True)
    ended.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
