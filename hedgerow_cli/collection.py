"""`hedgerow collection`: manages and searches collections of documents."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hedgerow_cli import options
from hedgerow_cli.cache import LOCAL, TIMEOUT_S, CacheServices
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hedgerow import AsyncCollectionClient, Collection, CollectionDocument, CollectionSearch
    from hedgerow._peer import Peer

T = TypeVar("T")


class RankingName(StrEnum):
    """How a search ranks snippets."""

    BOTH = "both"
    MEANING = "meaning"
    WORDS = "words"


collection = typer.Typer(help="Manage documents that answers may use.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The collection: letters, digits, _ and -.")]
Tenant = Annotated[str, typer.Option(metavar="NAME", help="The tenant whose collections are meant.")]


@collection.callback()
def _collection() -> None:
    """Manage documents that answers may use: they are cut into snippets, and found by meaning and by words.

    The cache service stores them, separately for each tenant. Each collection is a mesh tool: search_NAME. Changes go
    to every replica.
    """


@collection.command()
@with_options(services=CacheServices)
def put(
    name: Name,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Text or Markdown; of a folder, all its .md, .markdown and .txt files."),
    ],
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder that sources are relative to. Without it, sources are the paths as given."
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="What sources begin with, for example https://docs.example.com/")
    ] = "",
    description: Annotated[str, typer.Option(metavar="TEXT", help="Description of the collection, for models.")] = "",
    prune: Annotated[bool, typer.Option("--prune", help="Remove documents whose files are not among these.")] = False,
    tenant: Tenant = LOCAL,
    *,
    services: CacheServices,
    as_json: options.AsJson = False,
) -> None:
    """Put documents; each replaces the one with the same source.

    Unchanged documents cost nothing, so the command can run every night; of a changed one only the new snippets are
    embedded. Searches find the old version until the new one is complete. A file that cannot be put, and a folder that
    cannot be listed, get a line on stderr; the others are put, and the exit status is 1. If a folder cannot be listed,
    --prune removes nothing.

    \b
    Examples:
      hedgerow collection put handbook docs/ --description "How our product is run"
      hedgerow collection put handbook docs/ --base docs --prefix https://docs.example.com/ --prune
    """
    import json

    from hedgerow_cli.documents import PutAll, gather
    from hedgerow_cli.failures import reported

    with reported(as_json):
        put_all = PutAll(name, description, prune, gather(files, base, prefix))
    results = _each(services, tenant, as_json, put_all)
    if as_json:
        print(json.dumps({"caches": [{"address": address, **counts.as_object()} for address, counts in results]}))
    for address, counts in results if not as_json else ():
        print(f"{address}: {counts}")
    raise typer.Exit(any(counts.failed for _, counts in results))


@collection.command(name="list")
@with_options(services=CacheServices)
def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Its documents. Without it, all collections.")
    ] = None,
    tenant: Tenant = LOCAL,
    *,
    services: CacheServices,
    as_json: options.AsJson = False,
) -> None:
    """List a tenant's collections, or the documents of one, as each cache service has them.

    \b
    Examples:
      hedgerow collection list
      hedgerow collection list handbook --json | jq -r '.caches[0].documents[].source'
    """
    import json
    from dataclasses import asdict

    what = "documents" if name else "collections"

    async def look(client: AsyncCollectionClient) -> Sequence[Collection | CollectionDocument]:
        return await client.documents(name) if name else await client.collections()

    results = _each(services, tenant, as_json, look)
    if as_json:
        print(
            json.dumps({"caches": [{"address": at, what: [asdict(each) for each in listed]} for at, listed in results]})
        )
    else:
        _print([(at, asdict(each)) for at, listed in results for each in listed], what)


@collection.command()
@with_options(services=CacheServices)
def search(
    name: Name,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The search text: a question, or words.")],
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=50, help="How many snippets to return. Default: 5.")
    ] = None,
    by: Annotated[RankingName, typer.Option(help="How to search.")] = RankingName.BOTH,
    tenant: Tenant = LOCAL,
    *,
    services: CacheServices,
    as_json: options.AsJson = False,
) -> None:
    """Find the snippets that match a question best. With several cache services the first is asked.

    \b
    Examples:
      hedgerow collection search handbook "What happens while Redis is down?"
      hedgerow collection search handbook "similarity_threshold" --by words --limit 3
    """
    import json
    from dataclasses import asdict

    async def look(client: AsyncCollectionClient) -> CollectionSearch:
        return await client.search(name, question, limit=limit, ranking=by.value)

    [(_, found)] = _each(services, tenant, as_json, look, most=1)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        _print_hits(found)


@collection.command()
@with_options(services=CacheServices)
def remove(
    name: Name,
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Documents, as `list` names them.")],
    tenant: Tenant = LOCAL,
    *,
    services: CacheServices,
    as_json: options.AsJson = False,
) -> None:
    """Remove documents from a collection.

    \b
    Examples:
      hedgerow collection remove handbook docs/old.md
    """

    async def go(client: AsyncCollectionClient) -> int:
        return await client.remove(name, sources)

    _print_removed(_each(services, tenant, as_json, go), as_json)


@collection.command()
@with_options(services=CacheServices)
def drop(name: Name, tenant: Tenant = LOCAL, *, services: CacheServices, as_json: options.AsJson = False) -> None:
    """Remove a collection with all its documents.

    \b
    Examples:
      hedgerow collection drop handbook
    """

    async def go(client: AsyncCollectionClient) -> int:
        return await client.drop(name)

    _print_removed(_each(services, tenant, as_json, go), as_json)


def _each(
    services: CacheServices,
    tenant: str,
    as_json: bool,
    ask: Callable[[AsyncCollectionClient], Awaitable[T]],
    most: int | None = None,
) -> list[tuple[str, T]]:
    """The result of each cache service, or of the first `most`, by its address. Ends the command where one cannot be
    asked."""
    import asyncio

    from hedgerow_cli.failures import reported

    async def ask_all(peers: Sequence[Peer]) -> list[tuple[str, T]]:
        return [(peer.target, await _ask(peer, tenant, ask)) for peer in peers]

    with reported(as_json):
        return asyncio.run(ask_all(services.peers()[:most]))


async def _ask(peer: Peer, tenant: str, ask: Callable[[AsyncCollectionClient], Awaitable[T]]) -> T:
    from hedgerow import AsyncCollectionClient

    async with AsyncCollectionClient(peer.target, tenant=tenant, tls=peer.tls) as client:
        await client.prewarm(timeout_s=TIMEOUT_S)
        return await ask(client)


def _print(found: Sequence[tuple[str, dict[str, Any]]], what: str) -> None:
    from rich.table import Table

    from hedgerow_cli.terminal import PlainConsole

    if not found:
        print(f"no {what}")
        return
    several = len({at for at, _ in found}) > 1
    table = Table(*(["cache"] if several else []), *found[0][1], box=None)
    for at, each in found:
        table.add_row(*([at] if several else []), *map(str, each.values()))
    PlainConsole().print(table)


def _print_hits(found: CollectionSearch) -> None:
    from hedgerow_cli.failures import notify
    from hedgerow_cli.terminal import harmless

    if found.words_only:
        notify("the question is too long to be embedded: these go by its words alone")
    for hit in found.hits:
        place = f"{hit.source} ({hit.title})" if hit.title else hit.source
        print(harmless(f"{hit.score:.2f}  {place}\n{hit.text}\n"))
    if not found.hits:
        print("nothing was found")


def _print_removed(results: Sequence[tuple[str, int]], as_json: bool) -> None:
    import json

    if as_json:
        print(json.dumps({"caches": [{"address": address, "removed": removed} for address, removed in results]}))
    for address, removed in results if not as_json else ():
        print(f"{address}: removed {removed}")
