"""Calls to a gateway through an edge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc
from launcher.certificate_authority import Authority
from tests.certificates import Certificates
from tests.integration.edge.running import Edge, Gateway
from tests.waiting import until

GENERATE = "/hedgerow.gateway.v1.GatewayService/Generate"
ORIGIN = "https://app.example"
STREAMS = 4  # on one connection
CONNECTIONS = 40  # of all callers together
CHECKS = 4  # of health at once, likewise
QUESTION = pb.GenerateRequest(messages=[{"role": "ROLE_USER", "content": "What is the capital of France?"}])


def secure(edge: Edge, authority: Authority) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(edge.address, grpc.ssl_channel_credentials(authority.pem()))


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def ask(
    channel: grpc.aio.Channel, metadata: Any = (), timeout_s: float = 20, request: pb.GenerateRequest = QUESTION
) -> str:
    """The answer's text. Raises `AioRpcError`."""
    stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
    call = stub.Generate(request, metadata=metadata, timeout=timeout_s)
    return "".join([event.delta.text async for message in call for event in message.events])


async def refusal(channel: grpc.aio.Channel, metadata: Any = (), timeout_s: float = 20) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(channel, metadata, timeout_s)
    return refused.value


async def seen(gateway: Gateway, calls: int = 1) -> None:
    """Return when the gateway has been asked so often."""
    await until(lambda: len(gateway.requests) >= calls)


def frames(body: bytes) -> Iterator[tuple[bool, bytes]]:
    """gRPC-Web's frames: (whether it holds the trailers, content)."""
    while body:
        size = int.from_bytes(body[1:5])
        yield bool(body[0] & 0x80), body[5 : 5 + size]
        body = body[5 + size :]


def web_call(**headers: str) -> dict[str, Any]:
    """The request that a page's gRPC-Web client posts."""
    body = QUESTION.SerializeToString()
    said = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "origin": ORIGIN, **headers}
    return {"url": GENERATE, "content": b"\0" + len(body).to_bytes(4) + body, "headers": said}


def mutual_tls(certificates: Certificates) -> dict[str, Path]:
    return {"control_tls_dir": certificates.folder / "control", "tls_dir": certificates.folder / "edge"}
