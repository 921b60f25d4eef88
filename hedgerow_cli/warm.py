"""`hedgerow warm`: prepare a running mesh for its first requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow_cli import options, running
from hedgerow_cli.connection_options import CallerCredentials
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hedgerow._peer import Peer

Target = Annotated[
    str,
    typer.Option(
        "--gateway",
        "--target",
        envvar="HEDGEROW_TARGET",
        metavar="HOST:PORT",
        help="Address of the gateway. Without it: of the mesh that runs from this folder.",
        callback=running.address_of("gateway"),
    ),
]


@with_options(credentials=CallerCredentials)
def warm(
    system_prompts: Annotated[
        list[str] | None,
        typer.Option(
            "--system-prompt",
            metavar="NAME",
            help="A system prompt that the gateway keeps, or * for all; may be given several times. Without it, those "
            "of its setting warm.prompts.",
        ),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(metavar="N", min=1, max=3_600, help="The longest that the warm-up may take.")
    ] = 120,
    as_json: options.AsJson = False,
    gateway: Target = "127.0.0.1:50050",
    *,
    credentials: CallerCredentials,
) -> None:
    """Warm a running mesh: the gateway's connections, every replica's engine, and system prompts.

    Prints the time to the first text for each engine and prompt, and that of a second call. A warmed prompt serves the
    tenant of this caller, and those of its prefix group. Warm-up has the lowest priority. Exits with 1 if a step fails.

    \b
    Examples:
      hedgerow warm
      hedgerow warm --system-prompt support --json | jq '.steps[] | select(.problem != "")'
    """
    import asyncio
    import json

    from hedgerow._peer import Peer
    from hedgerow_cli.failures import reported

    reach = credentials.at(gateway, "gateway")
    with reported(as_json):
        peer = Peer(
            reach["target"], reach["api_key"], tls=reach["tls"], allow_plaintext_key=reach["allow_plaintext_key"]
        )
        steps = asyncio.run(_collect(peer, system_prompts or (), timeout_s, aloud=not as_json))
    is_warm = bool(steps) and not any(step["problem"] for step in steps)
    if as_json:
        print(json.dumps({"warm": is_warm, "steps": steps}))
    raise typer.Exit(not is_warm)


async def _collect(peer: Peer, names: Sequence[str], timeout_s: float, *, aloud: bool) -> list[dict[str, Any]]:
    """The steps, each printed as it comes where that is wanted."""
    from contextlib import aclosing

    steps = []
    async with aclosing(_steps(peer, names, timeout_s)) as coming:
        async for step in coming:
            steps.append(step)
            if aloud:
                print(_line(step), flush=True)
    return steps


async def _steps(peer: Peer, names: Sequence[str], timeout_s: float) -> AsyncGenerator[dict[str, Any], None]:
    """The gateway's progress. Raises `HedgerowError`."""
    import grpc

    from hedgerow._status import from_rpc_error
    from hedgerow.channel import open_channel
    from hedgerow.gateway.v1 import gateway_pb2, gateway_pb2_grpc

    async with open_channel(peer.target, tls=peer.tls) as channel:
        stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)  # type: ignore[no-untyped-call]
        request = gateway_pb2.WarmRequest(system_prompts=names)
        try:
            async for step in stub.Warm(request, timeout=timeout_s, metadata=peer.metadata()):
                yield _as_data(step)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, peer, timeout_s) from None


def _as_data(step: Any) -> dict[str, Any]:
    from hedgerow.gateway.v1 import gateway_pb2

    return {
        "kind": gateway_pb2.WarmKind.Name(step.kind).removeprefix("WARM_KIND_").lower(),
        "replica": step.replica,
        "prompt": step.prompt,
        "took_ms": step.took_ms,
        "before_ms": step.before_ms if step.HasField("before_ms") else None,
        "after_ms": step.after_ms if step.HasField("after_ms") else None,
        "problem": step.problem,
    }


def _line(step: dict[str, Any]) -> str:
    """For people: what, where, how long, and the times to the first text."""
    from hedgerow_cli.terminal import harmless

    times = [step[name] for name in ("before_ms", "after_ms") if step[name] is not None]
    first = "  first text " + " → ".join(f"{time:.1f} ms" for time in times) if times else ""
    end = f"  {harmless(step['problem'])}" if step["problem"] else first
    return f"{step['kind']:<10}  {step['replica']:<20}  {step['prompt']:<24}  {step['took_ms']:8.1f} ms{end}"
