"""Documents are found by their own tenant only, and complete."""

from __future__ import annotations

import asyncio
from threading import Event, Semaphore

import pytest

from services.cache.collections import collections as collections_module
from services.cache.collections.collections import Collections, PutResult
from services.cache.collections.documents import Document, Ranking
from services.cache.errors import CollectionFull, Dropped, NoCollection
from services.runtime.deadline import Deadline
from tests.unit.cache.collections.conftest import OpenCollections, document
from tests.unit.cache.conftest import BagOfWords
from tests.unit.conftest import Beside

REDIS = "# Redis\n\nWhile Redis is away nothing is stored."
PORTS = "# Ports\n\nThe gateway listens on port 50050."
LONG = "\n\n".join(f"## Section {number}\n\nwords of section number {number}" for number in range(20))


async def found(
    collections: Collections, question: str, tenant: str = "acme", name: str = "docs", ranking: Ranking = Ranking.BOTH
) -> list[str]:
    """The sources of what a search finds."""
    hits = (await collections.search(tenant, name, question, 5, ranking, Deadline.never())).hits
    return [hit.source for hit in hits]


async def test_a_document_is_found_by_its_words_and_by_its_meaning(open_collections: OpenCollections) -> None:
    collections = open_collections()
    for source, text in (("redis.md", REDIS), ("ports.md", PORTS)):
        put = await collections.put("acme", "docs", document(source, text))
        assert put == PutResult(unchanged=False, snippets=1, embedded=1)
    for ranking in Ranking:
        assert (await found(collections, "gateway port", ranking=ranking))[0] == "ports.md"
    search = await collections.search("acme", "docs", "gateway port", 5, Ranking.BOTH, Deadline.never())
    best = search.hits[0]
    assert (best.title, best.text, best.ordinal, best.score) == ("Ports", PORTS, 0, 1.0)
    assert best.similarity is not None
    assert not search.words_only


async def test_a_question_too_long_to_embed_is_searched_by_words_and_reported_so(
    open_collections: OpenCollections,
) -> None:
    collections = open_collections()
    await collections.put("acme", "docs", document("ports.md", PORTS))
    search = await collections.search("acme", "docs", "port " * 60, 5, Ranking.BOTH, Deadline.never())
    assert search.words_only
    assert [(hit.source, hit.similarity) for hit in search.hits] == [("ports.md", None)]


@pytest.mark.parametrize(
    "question", ['"', "NEAR(", "words:a OR *", "^", "🙂", "-", "a AND b NOT c", "שלום", "' OR 1=1 --", "a\0port"]
)
async def test_no_question_is_a_query_language(open_collections: OpenCollections, question: str) -> None:
    collections = open_collections()
    await collections.put("acme", "docs", document("a.md", "שלום a port"))
    assert set(await found(collections, question, ranking=Ranking.WORDS)) <= {"a.md"}


async def test_a_tenant_sees_its_own_collections_alone(open_collections: OpenCollections) -> None:
    collections = open_collections()
    await collections.put("acme", "docs", document("redis.md", REDIS))
    await collections.put("globex", "docs", document("ports.md", PORTS))
    await collections.put("acme", "secret", document("redis.md", REDIS))
    for ranking in Ranking:
        assert await found(collections, "Redis stored gateway", "globex", ranking=ranking) == ["ports.md"]
    assert [each.name for each in await collections.listed("globex")] == ["docs"]
    messages = []
    for name in ("secret", "never-there"):
        with pytest.raises(NoCollection) as error:
            await found(collections, "Redis", "globex", name)
        messages.append(error.value.message.replace(name, "NAME"))
    assert messages[0] == messages[1]
    assert await collections.drop("globex", "secret") == 0
    assert await found(collections, "Redis", "acme", "secret") == ["redis.md"]


async def test_how_rare_a_word_is_elsewhere_does_not_show(open_collections: OpenCollections) -> None:
    """Else a tenant could ask how often others use a word."""

    async def ranked(collections: Collections) -> list[tuple[str, float]]:
        search = await collections.search("globex", "docs", "port redis", 5, Ranking.WORDS, Deadline.never())
        return [(hit.source, hit.score) for hit in search.hits]

    collections = open_collections()
    for number, text in enumerate(("port port", "redis", "port gateway listens", "redis redis away")):
        await collections.put("globex", "docs", document(f"{number}.md", text))
    before = await ranked(collections)
    await collections.put("acme", "docs", document("flood.md", "port " * 500))
    assert await ranked(collections) == before


async def test_unchanged_snippets_are_not_embedded_again(open_collections: OpenCollections) -> None:
    engine = BagOfWords()
    collections = open_collections(engine=engine)
    first = await collections.put("acme", "docs", document("long.md", LONG))
    assert (first.snippets, first.embedded) == (20, 20)
    assert await collections.put("acme", "docs", document("long.md", LONG)) == PutResult(unchanged=True, snippets=20)
    changed = LONG.replace("words of section number 7", "other words")
    assert await collections.put("acme", "docs", document("long.md", changed)) == PutResult(False, 20, embedded=1)
    assert len(engine.embedded) == 21
    assert "section number 7" not in str(
        await collections.search("acme", "docs", "7", 50, Ranking.BOTH, Deadline.never())
    )


async def test_a_documents_title_is_looked_for_beside_the_event_loop(
    open_collections: OpenCollections, beside: Beside
) -> None:
    looked_for = beside(collections_module, "title_of")
    await open_collections().put("acme", "docs", document("ports.md", PORTS))
    assert looked_for == [True]


async def test_the_documents_of_one_tenant_do_not_hold_up_another_tenants(
    open_collections: OpenCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections, cut, begun, go_on = open_collections(), list[str](), Event(), Semaphore(0)

    def title_of(each: Document) -> str:
        cut.append(each.source)
        begun.set()
        go_on.acquire(timeout=5)
        return ""

    monkeypatch.setattr(collections_module, "title_of", title_of)
    flood = [document(f"{number}.md", PORTS) for number in range(10)]
    puts = [asyncio.create_task(collections.put("flood", "docs", each)) for each in flood]
    await asyncio.to_thread(begun.wait, 60)
    other = asyncio.create_task(collections.drop("acme", "docs"))
    await asyncio.sleep(0)
    go_on.release(2)
    await other
    assert len(cut) <= 3
    go_on.release(len(flood))
    await asyncio.gather(*puts)


async def test_readers_see_a_document_as_it_was_or_as_it_is(open_collections: OpenCollections) -> None:
    collections = open_collections()
    texts = [LONG, LONG.replace("words", "other")]
    await collections.put("acme", "docs", document("long.md", texts[0]))
    done = asyncio.Event()

    async def look() -> int:
        looks = 0
        while not done.is_set():
            hits = (await collections.search("acme", "docs", "section number", 50, Ranking.BOTH, Deadline.never())).hits
            assert sorted(hit.ordinal for hit in hits) == list(range(20))
            assert len({"other" in hit.text for hit in hits}) == 1
            looks += 1
        return looks

    looking = asyncio.create_task(look())
    for number in range(1, 11):
        await collections.put("acme", "docs", document("long.md", texts[number % 2]))
    done.set()
    assert await looking


async def test_a_document_that_cannot_be_kept_leaves_the_old_one_as_it_was(open_collections: OpenCollections) -> None:
    collections = open_collections(max_snippets=20)
    await collections.put("acme", "docs", document("redis.md", REDIS))
    with pytest.raises(CollectionFull, match="collection docs: at most 20 snippets, got 21"):
        await collections.put("acme", "docs", document("long.md", LONG))
    with pytest.raises(CollectionFull, match="collection docs: at most 20 snippets, got 21"):
        await collections.put("acme", "docs", document("redis.md", f"{LONG}\n\n## More\n\nword"))
    assert await found(collections, "Redis away") == ["redis.md"]
    (listed,) = await collections.listed("acme")
    assert (listed.documents, listed.snippets, listed.bytes) == (1, 1, len(REDIS))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_documents": 1}, "collection docs: at most 1 documents, got 2"),
        ({"max_bytes": 50}, "collection docs: at most 50 bytes, got 80"),
        ({"max_tenant_bytes": 50}, "the tenant's collections: at most 50 bytes, got 80"),
        ({"max_snippets_held": 1}, "all collections here: at most 1 snippets, got 2"),
        ({"max_document_snippets": 1}, "document: at most 1 snippets, got 2"),
    ],
)
async def test_every_limit_is_named_with_its_value(
    open_collections: OpenCollections, limits: dict[str, int], message: str
) -> None:
    collections = open_collections(**limits)
    text = "# One\n\nwords of the first one, forty bytes."
    await collections.put("acme", "docs", document("a.md", text[:40]))
    second = f"{text[:20]}\n\n# Two\n\nb" if "max_document_snippets" in limits else text[:40]
    with pytest.raises(CollectionFull) as error:
        await collections.put("acme", "docs", document("b.md", second))
    assert error.value.message == message


async def test_a_tenant_has_so_many_collections_and_another_has_its_own(open_collections: OpenCollections) -> None:
    collections = open_collections(max_collections=1)
    await collections.put("acme", "docs", document("a.md", REDIS))
    with pytest.raises(CollectionFull, match="the tenant's collections: at most 1 collections, got 2"):
        await collections.put("acme", "more", document("a.md", REDIS))
    await collections.put("globex", "docs", document("a.md", REDIS))
    await collections.drop("acme", "docs")
    await collections.put("acme", "more", document("a.md", REDIS))


@pytest.mark.parametrize("again", [[], ["a.md"]], ids=["dropped", "dropped and made again"])
async def test_a_document_put_into_a_collection_that_was_dropped_meanwhile_is_not_kept(
    open_collections: OpenCollections, again: list[str]
) -> None:
    collections = open_collections()
    await collections.put("acme", "docs", document("a.md", REDIS))
    embed = collections.background.embed

    async def dropped_meanwhile(*given: object) -> object:
        collections.background.embed = embed  # type: ignore[method-assign]
        await collections.drop("acme", "docs")
        for source in again:
            await collections.put("acme", "docs", document(source, REDIS))
        return await embed(*given)  # type: ignore[arg-type]

    collections.background.embed = dropped_meanwhile  # type: ignore[method-assign, assignment]
    with pytest.raises(Dropped):
        await collections.put("acme", "docs", document("b.md", PORTS))
    assert [each.documents for each in await collections.listed("acme")] == [1 for _ in again]
    assert bool(collections.snippets) is bool(again)


async def test_a_put_that_is_cancelled_while_its_document_is_embedded_stores_nothing(
    open_collections: OpenCollections,
) -> None:
    engine = BagOfWords()
    collections = open_collections(engine=engine)
    putting = asyncio.create_task(collections.put("acme", "docs", document("long.md", LONG)))
    while not engine.embedded:
        await asyncio.sleep(0)
    putting.cancel()
    await asyncio.wait([putting])
    assert putting.cancelled()
    assert await collections.listed("acme") == []


async def test_words_that_are_in_every_snippet_are_left_out_where_there_are_too_many(
    open_collections: OpenCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cache.collections.reading._MAX_SCORED", 10)
    collections = open_collections()
    await collections.put("acme", "docs", document("long.md", LONG))
    hits = (await collections.search("acme", "docs", "section number 13", 5, Ranking.WORDS, Deadline.never())).hits
    assert [hit.ordinal for hit in hits] == [13]
    assert await found(collections, "section", ranking=Ranking.WORDS) == ["long.md"] * 5
