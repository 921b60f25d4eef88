"""Each collection of a tenant is a tool, and what a model or a gateway sends it is checked."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.collection.v1 import collection_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from services.cache.collections.collections import Collections
from services.cache.collections.servicer import CollectionServicer
from services.cache.collections.settings import CollectionSettings
from services.cache.collections.tools import ToolServicer
from services.cache.errors import NoCollection
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, InvalidInput, Missing
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call
from tests.unit.cache.collections.conftest import OpenCollections, document

NOBODY = Call((), Deadline.never(), INVALID_SPAN)


def call_of(tenant: str) -> Call:
    return Call(((TENANT_HEADER, quote(tenant)),), Deadline.never(), INVALID_SPAN)


ACME = call_of("Acme Ünited")


@pytest.fixture
async def collections(open_collections: OpenCollections) -> Collections:
    collections = open_collections()
    await collections.put("Acme Ünited", "docs", document("ports.md", "# Ports\n\nThe gateway has 50050."), "our mesh")
    await collections.put("Acme Ünited", "docs", document("plain.txt", "Nothing about numbers."))
    await collections.put("globex", "secret", document("a.md", "The gateway has a secret."))
    return collections


@pytest.fixture
def tools(collections: Collections) -> ToolServicer:
    return ToolServicer(collections, 60_000)


@pytest.fixture
def servicer(collections: Collections) -> CollectionServicer:
    return CollectionServicer(collections, CollectionSettings(max_document_bytes=1000), 2_000)


def search(name: str = "search_docs", **arguments: Any) -> tool_pb2.CallToolRequest:
    return tool_pb2.CallToolRequest(name=name, arguments=json.dumps(arguments))


async def test_a_tenants_collections_are_its_tools(tools: ToolServicer) -> None:
    (tool,) = (await tools.ListTools(tool_pb2.ListToolsRequest(), ACME)).tools
    assert tool.tool.name == "search_docs"
    assert tool.tool.description.endswith("docs: our mesh")
    assert (tool.idempotent, tool.reusable_ms, tool.question_argument) == (True, 60_000, "query")
    schema = json.loads(tool.tool.parameters)
    assert (schema["required"], schema["additionalProperties"]) == (["query"], False)
    assert not (await tools.ListTools(tool_pb2.ListToolsRequest(), call_of("nobody"))).tools


async def test_a_call_gives_snippets_to_a_model_and_citations_to_people(tools: ToolServicer) -> None:
    reply = await tools.CallTool(search(query="What does the gateway have?", limit=1), ACME)
    assert reply.content == "[1] ports.md (Ports)\n# Ports\n\nThe gateway has 50050."
    (citation,) = reply.citations
    assert (citation.source, citation.title, citation.score) == ("ports.md", "Ports", 1.0)
    assert citation.text == "# Ports\n\nThe gateway has 50050."
    assert not reply.failed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "arguments: JSON"),
        ("[]", "arguments: a JSON object, got list"),
        ("{}", "query: a string, got NoneType"),
        ('{"query": "  "}', "query: text other than white space, got 2 characters"),
        ('{"query": "a\\u0000b"}', "query: text without NUL characters, got one at 1"),
        ('{"query": "' + "a" * 9000 + '"}', "query: at most 8192 bytes, got 9000 bytes"),
        ('{"query": "a", "limit": 51}', "limit: 1 to 50, got 51"),
        ('{"query": "a", "limit": true}', "limit: an integer, got bool"),
        ('{"query": "a", "where": "b"}', "arguments: query and limit, got where"),
        ("[" * 100_000, "arguments: JSON, got nested too deeply"),
    ],
)
async def test_a_model_gets_the_error_of_its_arguments(tools: ToolServicer, arguments: str, message: str) -> None:
    reply = await tools.CallTool(tool_pb2.CallToolRequest(name="search_docs", arguments=arguments), ACME)
    assert reply.failed
    assert reply.content.startswith(message)
    assert not reply.citations


async def test_another_tenants_tool_is_as_one_that_never_was(tools: ToolServicer) -> None:
    messages = set()
    for name in ("secret", "nothing"):
        with pytest.raises(NoCollection) as error:
            await tools.CallTool(search(f"search_{name}", query="gateway"), ACME)
        messages.add(error.value.message.replace(name, "NAME"))
    assert len(messages) == 1
    with pytest.raises(Missing):
        await tools.CallTool(search("docs", query="gateway"), ACME)


async def test_a_caller_without_a_tenant_has_no_tools(tools: ToolServicer) -> None:
    with pytest.raises(InvalidInput, match=TENANT_HEADER):
        await tools.ListTools(tool_pb2.ListToolsRequest(), NOBODY)
    with pytest.raises(InvalidInput, match=TENANT_HEADER):
        await tools.CallTool(search(query="gateway"), NOBODY)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tenant": ""}, "tenant: at least 1 character"),
        ({"collection": "a/b"}, "collection: 1 to 57 letters"),
        ({"collection": "../../etc"}, "collection: 1 to 57 letters"),
        ({"collection": "c" * 58}, "collection: 1 to 57 letters"),
        ({"description": "a\nb"}, "description: no control characters"),
        ({"document": pb.Document(text="text")}, "document.source: at least 1 character"),
        ({"document": pb.Document(source="a\0b", text="text")}, "document.source: no control characters, got one at 1"),
        ({"document": pb.Document(source="s" * 1025, text="text")}, "document.source: at most 1024 bytes"),
        ({"document": pb.Document(source="a")}, "document.text: text other than white space, got 0 characters"),
        (
            {"document": pb.Document(source="a", text="ELF\0\0")},
            "document.text: text without NUL characters, got one at 3",
        ),
        ({"document": pb.Document(source="a", text="é" * 600)}, "document: at most 1000 bytes, got 1200 bytes"),
        ({"document": pb.Document(source="a", passages=[{"title": "t"}])}, r"document.passages\[0\].text: text other"),
        (
            {"document": pb.Document(source="a", text="t", passages=[{"text": "t"}])},
            "document.passages: none together with",
        ),
    ],
)
async def test_a_document_that_cannot_be_stored_is_refused_by_name(
    servicer: CollectionServicer, changed: dict[str, Any], message: str
) -> None:
    request = {"tenant": "acme", "collection": "docs", "document": pb.Document(source="a.md", text="text"), **changed}
    with pytest.raises(InvalidInput, match=message):
        await servicer.PutDocument(pb.PutDocumentRequest(**request), NOBODY)


async def test_documents_that_wait_are_bounded_by_bytes(servicer: CollectionServicer) -> None:
    with pytest.raises(Exhausted, match="requests that wait"):
        await servicer.PutDocument(
            pb.PutDocumentRequest(
                tenant="acme",
                collection="docs",
                description="d" * 1000,
                document=pb.Document(source="a" * 1000, text="t" * 900),
            ),
            NOBODY,
        )


async def test_documents_are_listed_page_by_page(servicer: CollectionServicer) -> None:
    for name in ("c.md", "a.md", "b.md"):
        put = pb.PutDocumentRequest(
            tenant="acme", collection="docs", document=pb.Document(source=name, text="# T\n\nx")
        )
        await servicer.PutDocument(put, NOBODY)
    request = pb.ListDocumentsRequest(tenant="acme", collection="docs", page_size=2)
    first = await servicer.ListDocuments(request, NOBODY)
    request.page_token = first.next_page_token
    second = await servicer.ListDocuments(request, NOBODY)
    assert [each.source for each in (*first.documents, *second.documents)] == ["a.md", "b.md", "c.md"]
    assert not second.next_page_token
    assert first.documents[0].title == "T"
