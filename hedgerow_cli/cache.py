"""`hedgerow cache`: inspect, delete and prepare stored answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow_cli import options, running
from hedgerow_cli.connection_options import CallerCredentials, Reach, to_gateway
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hedgerow import Answer, AsyncClient
    from hedgerow._peer import Peer

TIMEOUT_S = 5.0
DEFAULT_CACHE = "127.0.0.1:50051"
LOCAL = "local"  # the one tenant of a gateway without keys

cache = typer.Typer(help="Inspect the stored answers.", no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True)
class CacheServices:
    """The cache services that are named, else those of the mesh that runs in `state_dir`."""

    caches: Annotated[
        list[str] | None,
        typer.Option(
            "--cache",
            envvar="HEDGEROW_TARGET_CACHE",
            metavar="HOST:PORT",
            help="The cache service; may be given several times. Without it, those of the mesh that runs from "
            "--state-dir.",
        ),
    ] = None
    state_dir: options.StateDir = running.FOLDER
    tls_dir: options.TlsDir = None

    def peers(self) -> list[Peer]:
        from hedgerow._peer import Peer

        tls = CallerCredentials(tls_dir=self.tls_dir).at(DEFAULT_CACHE, "cache")["tls"]
        return [Peer(target, service="cache service", tls=tls) for target in self.caches or _known(self.state_dir)]


@cache.callback()
def _cache() -> None:
    """Inspect, delete and prepare stored answers."""


@cache.command()
@with_options(services=CacheServices)
def stats(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="The tenant whose thresholds are shown.")] = LOCAL,
    *,
    services: CacheServices,
    as_json: options.AsJson = False,
) -> None:
    """Show the size of each cache service, and the results of its lookups since its start.

    With verification of hits, also the share of wrong hits in all lookups with its 95% bounds, and the resulting
    thresholds: the tenant's, and those of its categories of questions.

    \b
    Examples:
      hedgerow cache stats
      hedgerow cache stats --cache 10.0.0.7:50051 --json | jq '.caches[].entries'
    """
    import asyncio
    import json
    from functools import partial

    from hedgerow_cli.cache_stats import get_stats, show
    from hedgerow_cli.failures import reported

    with reported(as_json):
        peers = services.peers()
        counts = asyncio.run(_ask_all(peers, partial(get_stats, tenant, TIMEOUT_S)))
    found = [{"address": peer.target, **count} for peer, count in zip(peers, counts, strict=True)]
    if as_json:
        print(json.dumps({"caches": found}))
    else:
        show(found)


@cache.command()
@with_options(services=CacheServices)
def clear(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="The tenant whose answers are removed.")] = LOCAL,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only the answer with this key, from the report of a hit.")
    ] = None,
    *,
    services: CacheServices,
    as_json: options.AsJson = False,
) -> None:
    """Delete all answers of a tenant, or one.

    Gateways delete their copies at once. Without keys, all callers are the tenant "local".

    \b
    Examples:
      hedgerow cache clear
      hedgerow cache clear --tenant acme
    """
    import asyncio
    import json

    from hedgerow_cli.failures import reported

    async def forget(stub: Any) -> int:
        from hedgerow.cache.v1 import cache_pb2

        which = {"tenant": tenant} if key is None else {"key": key}
        reply: cache_pb2.InvalidateResponse = await stub.Invalidate(
            cache_pb2.InvalidateRequest(**which), timeout=TIMEOUT_S
        )
        return reply.removed

    with reported(as_json):
        removed = sum(asyncio.run(_ask_all(services.peers(), forget)))
    print(json.dumps({"removed": removed}) if as_json else f"removed {removed}")


@cache.command()
@with_options(reach=to_gateway)
def warm(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of questions, one on each line.")],
    at_once: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Number of concurrent requests.")] = 4,
    as_json: options.AsJson = False,
    *,
    reach: Reach,
) -> None:
    """Ask the questions in a file, so that their answers are stored before callers need them.

    Answers belong to the tenant that asks: with keys, use that tenant's. Questions that bypass the cache, for example
    about today, are not stored. Exits with 1 when one could not be answered.

    \b
    Examples:
      hedgerow cache warm questions.txt
    """
    import asyncio
    import json

    from hedgerow_cli.failures import fail, reported

    try:
        questions = [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {error}", "NO_QUESTIONS", as_json)
    with reported(as_json):
        answers = asyncio.run(_ask_questions(questions, reach, at_once))
    verdicts = [answer.cache.verdict if answer else "" for answer in answers]
    known, bypassed, failed = (verdicts.count(each) for each in ("exact", "bypass", ""))
    counts = {"asked": len(answers), "known": known, "not_kept": bypassed, "failed": failed}
    print(
        json.dumps(counts)
        if as_json
        else ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    )
    raise typer.Exit(failed > 0)


@cache.command()
@with_options(reach=to_gateway)
def wrong(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, from the report of a hit.")],
    question: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The question with the wrong answer. Without it, only equal questions get the answer."
        ),
    ] = None,
    as_json: options.AsJson = False,
    *,
    reach: Reach,
) -> None:
    """Report that an answer is wrong for a question, which then no longer gets it.

    The question that it was stored for still gets it. Answers belong to a tenant: report as the tenant that asked.
    Exits with 1 when there is no such answer.

    \b
    Examples:
      hedgerow cache wrong 5f0c… --question "What is the capital of Spain?"
    """
    import asyncio
    import json

    from hedgerow import AsyncClient
    from hedgerow_cli.failures import reported

    async def report() -> bool:
        async with AsyncClient(**reach) as client:
            return await client.report_wrong(key, question, TIMEOUT_S)

    with reported(as_json):
        tightened = asyncio.run(report())
    message = "this question no longer gets the answer" if tightened else "there is no such answer"
    print(json.dumps({"tightened": tightened}) if as_json else message)
    raise typer.Exit(not tightened)


def _known(state_dir: Path) -> list[str]:
    """The cache services of the mesh that runs in `state_dir`, else the default address. Raises `NotFound`."""
    from hedgerow import NotFound
    from hedgerow_cli.status import known_addresses

    try:
        known = known_addresses(state_dir)
    except ModuleNotFoundError:  # without the launcher no mesh runs there
        return [DEFAULT_CACHE]
    found = [address for name, address in known.items() if name.partition("-")[0] == "cache"]
    if not found:
        message = "the mesh that runs here has no cache service; a mesh file without `cache: false` has one"
        raise NotFound(message, reason="NO_CACHE")
    return found


async def _ask_all(peers: Sequence[Peer], ask: Callable[[Any], Any]) -> list[Any]:
    """The answer of each cache service. Raises `HedgerowError`; `NO_CACHE_SERVICE` where one does not answer."""
    import asyncio

    return list(await asyncio.gather(*(_ask(peer, ask) for peer in peers)))


async def _ask(peer: Peer, ask: Callable[[Any], Any]) -> Any:
    import grpc

    from hedgerow._status import from_rpc_error
    from hedgerow.cache.v1 import cache_pb2_grpc
    from hedgerow.channel import open_channel

    async with open_channel(peer.target, tls=peer.tls) as channel:
        stub: Any = cache_pb2_grpc.CacheServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            return await ask(stub)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, peer, TIMEOUT_S) from None


async def _ask_questions(questions: Sequence[str], reach: Reach, at_once: int) -> list[Answer | None]:
    """Their answers; None for one that could not be had."""
    import asyncio

    from hedgerow import AsyncClient

    slots = asyncio.Semaphore(at_once)
    async with AsyncClient(**reach) as client:
        await client.prewarm(timeout_s=TIMEOUT_S)  # a gateway that is not there is one failure
        return list(await asyncio.gather(*(_ask_one(client, question, slots) for question in questions)))


async def _ask_one(client: AsyncClient, question: str, slots: Any) -> Answer | None:
    from hedgerow import HedgerowError
    from hedgerow_cli.failures import explain, notify

    async with slots:
        try:
            return await client.ask(question, cache="use")
        except HedgerowError as error:
            notify(f"{question}: {explain(error)}")
            return None
