"""Collections in the real cache service, with its real embedder."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hedgerow import (
    AsyncCollectionClient,
    InvalidArgument,
    NotFound,
    Passage,
    ResourceExhausted,
)
from hedgerow.channel import open_channel
from hedgerow.tool.v1 import tool_pb2, tool_pb2_grpc
from services.runtime.rpc.authorization import TENANT_HEADER
from tests.conftest import Start
from tests.forked import ServiceProcess
from tests.integration.command import run

REDIS = "# Redis\n\nWhile Redis is away the cache keeps nothing new.\n\n## Ports\n\nIt listens on 6379."
GATEWAY = "# Gateway\n\n" + "\n\n".join(
    f"## Part {number}\n\nThe gateway's part number {number} does something of its own." for number in range(30)
)
HEBREW = "כותרת\n\nהשער מאזין בפורט 50050. המטמון שומר תשובות."

Running = tuple[ServiceProcess, AsyncCollectionClient]
StartCache = Callable[[], Awaitable[Running]]


@pytest.fixture
async def start_cache(start: Start, model_cache: Path, tmp_path: Path) -> AsyncIterator[StartCache]:
    """Starts a cache service on one file, and connects to it."""
    async with AsyncExitStack() as stack:

        async def start_cache() -> Running:
            database = tmp_path / "collections.db"
            process = await start("cache", model_cache=model_cache, collections_database=database)
            client = AsyncCollectionClient(process.spec.address, tenant="acme")
            return process, await stack.enter_async_context(client)

        yield start_cache


async def sources(client: AsyncCollectionClient, question: str) -> list[str]:
    return [hit.source for hit in (await client.search("docs", question)).hits]


async def test_a_document_is_found_survives_a_kill_and_is_gone_when_removed(start_cache: StartCache) -> None:
    process, client = await start_cache()
    assert (await client.put("docs", "redis.md", REDIS, description="how it is run")).embedded == 2
    assert (await client.put("docs", "gateway.md", GATEWAY)).snippets == 30
    assert (await client.put("docs", "hebrew.txt", HEBREW)).snippets == 1
    assert (await client.put("docs", "faq", passages=[Passage("It hides in the hedge.", "Where?")])).snippets == 1
    found = (await client.search("docs", "Is anything stored if the key-value store is down?", ranking="meaning")).hits
    assert (found[0].source, found[0].title) == ("redis.md", "Redis")  # no word of it is in the question
    assert (await sources(client, "באיזה פורט מאזין השער"))[0] == "hebrew.txt"
    assert (await sources(client, "6379"))[0] == "redis.md"
    listed = await client.collections()
    process.signal(signal.SIGKILL)
    await process.stop()

    process, client = await start_cache()
    assert await client.collections() == listed
    assert (listed[0].documents, listed[0].snippets, listed[0].waiting) == (4, 34, 0)
    again = await client.search("docs", "Is anything stored if the key-value store is down?", ranking="meaning")
    assert [replace(hit, similarity=0) for hit in again.hits] == [replace(hit, similarity=0) for hit in found]
    near = [pytest.approx(hit.similarity, abs=1e-5) for hit in found]  # a batch of another size has other last digits
    assert [hit.similarity for hit in again.hits] == near
    for source, text in (("redis.md", REDIS), ("gateway.md", GATEWAY)):
        assert (await client.put("docs", source, text)).unchanged
    changed = GATEWAY.replace("part number 7", "seventh part")
    assert (await client.put("docs", "gateway.md", changed)).embedded == 1
    assert await client.remove("docs", ["redis.md", "never-there.md"]) == 1
    assert "redis.md" not in await sources(client, "6379")
    assert [each.source for each in await client.documents("docs")] == ["faq", "gateway.md", "hebrew.txt"]
    assert await client.drop("docs") == 3
    with pytest.raises(NotFound) as error:
        await client.search("docs", "6379")
    assert error.value.reason == "NO_COLLECTION"


async def test_hostile_documents_are_refused_by_name_and_harm_no_other_document(start_cache: StartCache) -> None:
    _, client = await start_cache()
    await client.put("docs", "redis.md", REDIS)
    for source, text, printed in (
        ("nul.txt", "ELF\0\0", "document.text: text without NUL characters, got one at 3"),
        ("large.txt", "word " * 2_000_000, "request: at most 4194304 bytes, got 10000"),
        ("larger.txt", "word " * 250_000, "document: at most 1048576 bytes, got 1250000 bytes"),
        ("a\nb", "text", "document.source: no control characters, got one at 1"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await client.put("docs", source, text)
        assert refused.value.message.startswith(printed)
    for name in ("a/b", "../docs", "", "שם", "d" * 58):
        with pytest.raises(InvalidArgument, match="collection: 1 to 57 letters"):
            await client.put(name, "redis.md", REDIS)
    with pytest.raises(ResourceExhausted, match="document: at most 10000 snippets, got 10001") as full:
        await client.put("docs", "many.md", "# a\nb\n" * 100_000)
    assert full.value.reason == "COLLECTION_FULL"
    for text in ("a" * 100_000, "\u202e\u202d" * 1_000 + "x", "🙂" * 10_000, "\x1b[2J\x85\x1c", "[" * 50_000):
        put = await client.put("docs", "odd.txt", text)
        assert put.snippets >= 1
    assert (await sources(client, "what does Redis do"))[0] == "redis.md"


async def test_a_collection_is_a_tool_of_its_tenant_alone(start_cache: StartCache) -> None:
    process, client = await start_cache()
    await client.put("docs", "redis.md", REDIS, description="how it is run")
    async with open_channel(process.spec.address) as channel:
        stub = tool_pb2_grpc.ToolServiceStub(channel)
        acme, globex = ({"metadata": ((TENANT_HEADER, tenant),)} for tenant in ("acme", "globex"))
        (tool,) = (await stub.ListTools(tool_pb2.ListToolsRequest(), **acme)).tools
        assert (tool.tool.name, tool.question_argument) == ("search_docs", "query")
        call = tool_pb2.CallToolRequest(name="search_docs", arguments='{"query": "Where does Redis listen?"}')
        reply = await stub.CallTool(call, **acme)
        assert reply.content.startswith("[1] redis.md (Redis › Ports)\n## Ports\n\nIt listens on 6379.")
        assert [citation.source for citation in reply.citations] == ["redis.md", "redis.md"]
        assert not (await stub.ListTools(tool_pb2.ListToolsRequest(), **globex)).tools


async def test_the_command_puts_what_has_changed_and_removes_what_is_gone(
    start_cache: StartCache, tmp_path: Path
) -> None:
    process, _ = await start_cache()
    folder = tmp_path / "pages"
    (folder / "in").mkdir(parents=True)
    for name, text in (("redis.md", REDIS), ("in/gateway.md", GATEWAY), ("notes.bin", "no text")):
        (folder / name).write_text(text)
    where = ("--cache", process.spec.address, "--tenant", "acme", "--json")

    async def run_json(*arguments: str) -> tuple[int | None, dict[str, object]]:
        code, out, _ = await run("collection", *arguments, *where)
        return code, json.loads(out)

    put = ("put", "docs", str(folder), "--base", str(folder), "--prune")
    first, again = await run_json(*put), await run_json(*put)
    counts = {"removed": 0, "snippets": 32, "failed": [], "address": process.spec.address}
    assert first == (0, {"caches": [{**counts, "put": 2, "unchanged": 0, "embedded": 32}]})
    assert again == (0, {"caches": [{**counts, "put": 0, "unchanged": 2, "embedded": 0}]})
    (folder / "redis.md").unlink()
    (folder / "broken.txt").write_bytes(b"\xff\xfe\xfa")
    code, pruned = await run_json(*put)
    (cache,) = pruned["caches"]  # type: ignore[misc, index]
    assert code == 1
    assert (cache["removed"], cache["unchanged"], [each["source"] for each in cache["failed"]]) == (
        1,
        1,
        ["broken.txt"],
    )
    code, listed = await run_json("list", "docs")
    assert [each["source"] for each in listed["caches"][0]["documents"]] == ["in/gateway.md"]  # type: ignore[index]
    code, out, _ = await run("collection", "search", "docs", "part number 12", "--limit", "1", *where[:-1])
    assert code == 0
    assert "in/gateway.md (Gateway › Part 12)" in out
    code, refused = await run_json("search", "none", "anything")
    assert (code, refused["error"]["reason"]) == (1, "NO_COLLECTION")  # type: ignore[index]
