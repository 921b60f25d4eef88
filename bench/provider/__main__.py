"""`python -m bench.provider http1|http2 [FOLDER] [--tokens N] [--each-ms X]`: a simulated provider until its standard
input ends.

It prints its URL, and for each line of input how many connections it has taken. With a FOLDER it speaks TLS, with the
`tls.crt` and `tls.key` that are there.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from argparse import ArgumentParser
from pathlib import Path

import uvloop

from bench.provider.server import Behaviour, Protocol, SimulatedProvider

TOKENS, EACH_MS = 16, 1.0  # of an answer: as fast as the fastest providers


async def main(protocol: Protocol, folder: str, behaviour: Behaviour) -> None:
    tls = None
    if folder:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(Path(folder, "tls.crt"), Path(folder, "tls.key"))
    async with SimulatedProvider(protocol, tls, behaviour) as provider:
        print(provider.url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(provider.counts.accepted, flush=True)


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("protocol", choices=("http1", "http2"))
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--each-ms", type=float, default=EACH_MS)
    asked = parser.parse_args()
    uvloop.run(main(asked.protocol, asked.folder, Behaviour(asked.tokens, each_ms=asked.each_ms)))
