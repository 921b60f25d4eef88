"""A server of `grpc.aio` alone with the gateway's contract: it shows what a flood of calls costs in gRPC itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.apart import apart


@asynccontextmanager
async def bare_gateway() -> AsyncIterator[str]:
    """The address of the gateway, which serves in a process of its own."""
    async with apart(_serve, gives_way=False) as (address,):
        yield address


async def _serve() -> AsyncIterator[str]:
    """The address of a service that answers with a word."""
    final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP)
    answer = pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text="word")), pb.Event(final=final)])

    async def generate(request: pb.GenerateRequest, _: object) -> AsyncIterator[pb.GenerateResponse]:
        yield answer

    method = grpc.unary_stream_rpc_method_handler(
        generate, pb.GenerateRequest.FromString, pb.GenerateResponse.SerializeToString
    )
    server = grpc.aio.server()
    service = pb.DESCRIPTOR.services_by_name["GatewayService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Generate": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.wait_for_termination()
