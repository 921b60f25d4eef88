"""A stage with its service, `glossary`: what its checklist has written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.contract.checklists.following import Checklist

TITLE = "Add a stage with its service"
NAME, PORT = "glossary", 50057
IDENTITIES, PROJECT, STAGES = "hedgerow/identities.py", "pyproject.toml", "services/gateway/answer/registry.py"
TEST = f"tests/unit/gateway/test_{NAME}.py"
SDK = "hedgerow/pyproject.toml"
OWN = {
    f"protos/hedgerow/{NAME}/v1/{NAME}.proto": """// Definitions of words.
syntax = "proto3";

package hedgerow.glossary.v1;

// Explains the words of a text.
service GlossaryService {
  // Finds the explanations of a text's words. Read-only.
  rpc Explain(ExplainRequest) returns (ExplainResponse);
}

// Asks for the explanations of a text's words.
message ExplainRequest {
  // The text.
  string text = 1;
}

// Has the explanations of a text's words.
message ExplainResponse {
  // One line for each word that has an explanation.
  repeated string lines = 1;
}
""",
    f"services/{NAME}/__init__.py": "",
    f"services/{NAME}/__main__.py": '''"""Runs the glossary: `python -m services.glossary`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.glossary.v1 import glossary_pb2
from services.glossary.config import GlossarySettings
from services.glossary.servicer import GlossaryServicer
from services.runtime.process import serve

_SERVICE = glossary_pb2.DESCRIPTOR.services_by_name["GlossaryService"]


@asynccontextmanager
async def assemble(settings: GlossarySettings) -> AsyncIterator[Mapping[ServiceDescriptor, GlossaryServicer]]:
    yield {_SERVICE: GlossaryServicer(settings.words)}


SERVICE = serve.Service("glossary", GlossarySettings, [_SERVICE], assemble)

if __name__ == "__main__":
    serve.main(*SERVICE)
''',
    f"services/{NAME}/config.py": f'''"""Settings of the glossary."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.runtime.process.config import ServiceSettings


class GlossarySettings(ServiceSettings):
    """Settings of the glossary."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_GLOSSARY_")

    address: str = Field("127.0.0.1:{PORT}", description="Where to serve gRPC, host:port.")
    words: dict[str, str] = Field({{}}, description="Explanations of words, as JSON by the word.")
''',
    f"services/{NAME}/servicer.py": '''"""The contract of the glossary."""

from __future__ import annotations

from collections.abc import Mapping

from hedgerow.glossary.v1 import glossary_pb2 as pb
from services.runtime.rpc.boundary import Call


class GlossaryServicer:
    """Serves `hedgerow.glossary.v1.GlossaryService`."""

    def __init__(self, words: Mapping[str, str]):
        self._words = words

    async def Explain(self, request: pb.ExplainRequest, call: Call) -> pb.ExplainResponse:
        used = (word.strip("?!.,").lower() for word in request.text.split())
        return pb.ExplainResponse(lines=[f"{word}: {self._words[word]}" for word in used if word in self._words])
''',
    f"services/gateway/answer/stages/{NAME}.py": '''"""Adds the explanations of a question's words to its context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.glossary.v1 import glossary_pb2, glossary_pb2_grpc
from services.gateway.answer.stages.own import ServiceStage


class GlossaryStage(ServiceStage):
    """Asks the service `glossary` for the words of the last message."""

    name = "glossary"

    async def look(self, request: gateway_pb2.GenerateRequest, budget_s: float) -> Sequence[str]:
        stub: Any = glossary_pb2_grpc.GlossaryServiceStub(self.channel)  # type: ignore[no-untyped-call]
        asked = glossary_pb2.ExplainRequest(text=request.messages[-1].content)
        return list((await stub.Explain(asked, timeout=budget_s)).lines)
''',
    TEST: '''"""The words of a question are explained in its context."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2
from hedgerow.glossary.v1 import glossary_pb2
from services.gateway.answer.registry import BadStage, opened
from services.gateway.answer.stages.glossary import GlossaryStage
from services.glossary.servicer import GlossaryServicer
from services.runtime.rpc import boundary
from services.runtime.rpc.authorization import anyone

NONE: Any = None
SERVICE = glossary_pb2.DESCRIPTOR.services_by_name["GlossaryService"]


async def test_a_question_has_the_explanations_of_its_words() -> None:
    server = grpc.aio.server()
    servicers: Any = {SERVICE.full_name: GlossaryServicer({"ttft": "the time to the first token"})}
    server.add_generic_rpc_handlers((boundary.handlers(SERVICE, servicers, anyone, 1_000),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        await opened([], {"glossary": channel}, NONE, stack)
        assert GlossaryStage.wanted(NONE, NONE, NONE)
        message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What is TTFT?")
        found = await GlossaryStage(NONE).look(gateway_pb2.GenerateRequest(messages=[message]), 5)
        assert found == ["ttft: the time to the first token"]
        await opened([], {}, NONE, stack)
        assert not GlossaryStage.wanted(NONE, NONE, NONE)
        with pytest.raises(BadStage, match="stages with a service .glossary., got other"):
            await opened([], {"other": channel}, NONE, stack)
    await server.stop(0)
''',
}
TESTS = [
    *(f"tests/contract/test_{name}.py" for name in ("settings", "mesh_schema")),
    "tests/contract/test_generated.py::test_stubs_are_what_the_contracts_generate",
    "tests/contract/test_tree.py::test_the_folders_are_the_services",
    f"tests/contract/test_tree.py::test_a_service_has_an_extra_and_its_own_port[{NAME}]",
    "tests/contract/test_tree.py::test_the_import_rules_know_every_service",
    f"tests/contract/test_images.py::test_an_image_has_every_package_its_service_imports[{NAME}]",
    f"tests/contract/test_images.py::test_an_image_runs_its_service_without_privileges_and_has_a_health_check[{NAME}]",
    "tests/contract/test_images.py::test_every_service_has_an_image",
]


def checklist(tree: Path) -> Checklist:
    return Checklist(TITLE, {**OWN, **dict(_named(tree))}, [TEST, *TESTS])


def _named(tree: Path) -> Iterator[tuple[str, str]]:
    """The files that name every service or stage, as they become."""
    text = (tree / IDENTITIES).read_text()
    yield (
        IDENTITIES,
        text.replace("\n)\n_CONTROL", f'\n    Service("{NAME}", {PORT}, adds_context=True),\n)\n_CONTROL', 1),
    )
    text = (tree / PROJECT).read_text()
    text = text.replace("services.gateway | ", f"services.gateway | services.{NAME} | ", 1)
    yield (
        PROJECT,
        re.sub(r"^control = ", f'{NAME} = ["hedgerow-mesh[runtime]"]\ncontrol = ', text, count=1, flags=re.MULTILINE),
    )
    text = (tree / SDK).read_text()
    (line,) = re.findall(r"^control = .*\n", text, re.MULTILINE)
    yield SDK, text.replace(line, line.replace("control", NAME) + line, 1)
    text = (tree / STAGES).read_text()
    line = "from services.gateway.answer.stages.guard import GuardStage\n"
    text = text.replace(line, f"from services.gateway.answer.stages.{NAME} import GlossaryStage\n{line}", 1)
    yield STAGES, text.replace("VisionStage, GuardStage", "VisionStage, GlossaryStage, GuardStage", 1)
