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
    parser = ArgumentParser(
        "bench.provider",
        description="Serve a simulated provider on loopback until standard input ends, and print its URL. It has "
        "/v1/chat/completions, /v1/messages, /v1/embeddings, /v1/rerank and /v1/models.",
    )
    parser.add_argument("protocol", choices=("http1", "http2"), help="HTTP/1.1, or HTTP/2 without /v1/messages")
    parser.add_argument("--port", type=int, default=0, help="where it serves; 0, the default: a free port")
    parser.add_argument("--tokens", type=int, default=16, help="tokens of an answer (default 16)")
    parser.add_argument("--first-ms", type=float, default=0.0, help="milliseconds before the first token (default 0)")
    parser.add_argument("--each-ms", type=float, default=1.0, help="milliseconds between two tokens (default 1)")
    asked = parser.parse_args()
    uvloop.run(main(asked.protocol, Behaviour(asked.tokens, asked.first_ms, asked.each_ms), asked.port))
