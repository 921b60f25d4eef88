"""A simulated provider until its standard input ends: `python -m bench.provider http1`.

It prints its URL. `--port N` says where it serves; `--tokens N`, `--first-ms X` and `--each-ms X` what it answers, and
when.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser

import uvloop

from bench.provider.server import Behaviour, Protocol, SimulatedProvider


async def main(protocol: Protocol, behaviour: Behaviour, port: int) -> None:
    async with SimulatedProvider(protocol, behaviour=behaviour, port=port) as provider:
        print(provider.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("protocol", choices=("http1", "http2"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--first-ms", type=float, default=0.0)
    parser.add_argument("--each-ms", type=float, default=1.0)
    asked = parser.parse_args()
    uvloop.run(main(asked.protocol, Behaviour(asked.tokens, asked.first_ms, asked.each_ms), asked.port))
