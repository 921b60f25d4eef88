"""Third-party test suites: llm-comply asks what a client of each API may ask, schemathesis whatever
docs/openapi.yaml allows, and what it does not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.conftest import REPOSITORY
from tests.integration.foreign_clients import Installed, output, whole_gateway
from tests.integration.http_gateway import HttpGateway
from tests.integration.scripted_cache import VECTOR

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "positive_data_acceptance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
)
# Of a run; the seed makes it the same one each time.
BOUNDS = ("--seed", "7", "--max-examples", "10", "--phases", "examples,coverage,fuzzing", "--max-failures", "20")
QUIET = ("--no-color", "--generation-database", "none", "--warnings", "off")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpGateway]:
    async with whole_gateway(tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture(scope="module")
def suites() -> Path:
    """The folder of their commands."""
    return Installed().python("suites")


@pytest.mark.parametrize("api", ["openai-chat", "open-responses", "anthropic"])
async def test_llm_comply_passes(gateway: HttpGateway, suites: Path, api: str) -> None:
    asked = ("--format", api, "-u", f"{gateway.url}/v1", "-k", "any", "-m", "m", "--json")
    _, out, err = await output(suites / "llm-comply", *asked)
    results = json.loads(out)["results"] if out else []
    assert len(results) > 8, err
    assert not [each for each in results if each["status"] not in ("passed", "skipped")]
    skipped = {each["id"] for each in results if each["status"] == "skipped"}  # for models of certain names
    assert skipped <= {"chat-reasoning-summary", "reasoning-summary", "anth-thinking-display"}


async def test_schemathesis_passes(gateway: HttpGateway, suites: Path, tmp_path: Path) -> None:
    document = yaml.safe_load((REPOSITORY / "docs/openapi.yaml").read_text())
    (tmp_path / "openapi.json").write_text(json.dumps(narrowed(document)))
    asked = (tmp_path / "openapi.json", "--url", gateway.url, "--checks", ",".join(CHECKS), *BOUNDS, *QUIET)
    code, out, err = await output(suites / "schemathesis", "run", *asked, folder=tmp_path)
    assert code == 0, out + err


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """What a schema cannot say, as far as it decides whether a request is served: what there is here, which tool a
    choice means, whose turn it is. Times would end answers; the headers' options are tested beside their reader."""
    for path in document["paths"].values():
        for operation in path.values():
            operation["parameters"] = [each for each in operation.get("parameters", ()) if each.get("in") == "path"]
    schemas = document["components"]["schemas"]
    schemas["Model"] = {"enum": ["m", "auto", "fast"]}
    _shape(schemas)
    for name in (
        *("budget_ms", "first_token_ms", "silence_ms", "system_prompt", "guard", "mesh_tools"),
        *("cascade", "cascade_at_once", "repair"),
    ):
        del schemas["Options"]["properties"][name]
    schemas["EmbeddingRequest"]["properties"]["dimensions"] = {"const": len(VECTOR)}
    schemas["Sampling"]["properties"]["top_p"]["minimum"] = 0.01
    _ask(schemas)
    _close(schemas["CompletionRequest"], schemas)
    seen = set[int]()
    for name in (
        *("ChatRequest", "CompletionRequest", "ResponseRequest", "MessageRequest"),
        *("EmbeddingRequest", "RerankRequest", "ModerationRequest"),
    ):
        _loosen(schemas[name], schemas, seen)
    return document


def _close(schema: dict[str, Any], schemas: dict[str, Any]) -> None:
    """The same as `unevaluatedProperties: false`, which schemathesis does not go by."""
    del schema["unevaluatedProperties"]
    schema |= {"properties": _fields(schema, schemas), "additionalProperties": False}
    del schema["allOf"]


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    parts = [schemas[each["$ref"].rpartition("/")[2]] for each in schema.get("allOf", ())]
    return {name: given for part in parts for name, given in _fields(part, schemas).items()} | schema["properties"]


def _shape(node: Any) -> None:
    """An answer's form is what the scripted model says. A tool's parameters have that schema too: any object."""
    if isinstance(node, dict):
        if node.get("schema") == {"$ref": "#/components/schemas/JsonSchema"}:
            node["schema"] = {"const": {"type": "object"}}
        node = list(node.values())
    for inner in node if isinstance(node, list) else ():
        _shape(inner)


def _ask(schemas: dict[str, Any]) -> None:
    """All messages are a user's, with text in each; no tool must be called, and two may not have one name."""
    chat, response, message = (
        schemas[name]["properties"] for name in ("ChatRequest", "ResponseRequest", "MessageRequest")
    )
    schemas["ChatMessage"] = schemas["ChatMessage"]["oneOf"][0]
    # Of Responses a model behind that API gets items and parts of all types.
    schemas["ResponseItem"] = schemas["ResponseItem"]["anyOf"][0]
    del schemas["ResponseItem"]["properties"]["type"]
    schemas["ResponsePart"] = schemas["ResponsePart"]["anyOf"][1]
    response["tools"]["items"] = response["tools"]["items"]["anyOf"][1]
    prompted = schemas["Prompt"]["properties"]["messages"]["items"]
    for said in (schemas["ChatMessage"], schemas["ResponseItem"], prompted):
        said["properties"]["role"] = {"const": "user"}
    for name in ("Part", "Block"):  # of pictures there may be 8 in all
        schemas[name] = schemas[name]["oneOf"][0]
    openai = ["image_url", "input_image", "input_audio"]
    texts, anthropic = schemas["Text"]["properties"]["type"]["enum"], ["image", "tool_use", "tool_result", "thinking"]
    for content, types, others, text in (
        (schemas["Content"], texts, openai, schemas["Turn"]),
        (schemas["ResponseContent"], texts, [], schemas["Turn"]),
        (prompted["properties"]["content"], ["text"], anthropic, schemas["Said"]),
    ):
        content["oneOf"][1]["prefixItems"] = [_text_or_unknown(types, others, text)]
    for each in (chat, response, message):
        del each["tools"]["maxItems"]
    chat["tool_choice"] = response["tool_choice"] = {"enum": ["none", "auto"]}
    message["tool_choice"] = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": ["auto", "none"]}},
    }
    # The scripted model says what fits the schema alone.
    formats = (response["text"]["properties"]["format"], message["output_config"]["properties"]["format"])
    for each in (schemas["ResponseFormat"], *formats):
        each["oneOf"].remove({"$ref": "#/components/schemas/OwnFormat"})
    for each in (chat, schemas["CompletionRequest"]["properties"], response, message):
        del each["structured_outputs"]
    del chat["top_logprobs"]  # it needs `logprobs` beside it


def _text_or_unknown(types: list[str], others: list[str], text: dict[str, Any]) -> dict[str, Any]:
    """A part with text, or one of a type that only a model behind the same API may know."""
    known = {"required": ["text"], "properties": {"type": {"enum": types}, "text": text}}
    unknown = {"properties": {"type": {"type": "string", "not": {"enum": [*types, *others]}}}}
    return {"type": "object", "required": ["type"], "anyOf": [known, unknown]}


def _loosen(schema: dict[str, Any], schemas: dict[str, Any], seen: set[int]) -> None:
    """A field that is null counts as left out, as the document says once for all."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if id(schema) in seen:
        return
    seen.add(id(schema))
    fields = schema.get("properties", {})
    items = [schema["items"]] if "items" in schema else []
    for inner in (
        *(each for of in ("allOf", "oneOf", "anyOf") for each in schema.get(of, ())),
        *fields.values(),
        *items,
    ):
        _loosen(inner, schemas, seen)
    if given := schema.get("additionalProperties"):
        schema["additionalProperties"] = {"anyOf": [given, {"type": "null"}]}
    for name, given in fields.items():
        if name not in schema.get("required", ()):
            fields[name] = {"anyOf": [given, {"type": "null"}]}
