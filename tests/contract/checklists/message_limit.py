"""A request option, `most_messages`: what its checklist has written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.contract.checklists.following import Checklist

TITLE = "Add a request option"
OPTION = "most_messages"
PROTO, TABLE = "protos/hedgerow/gateway/v1/gateway.proto", "hedgerow/request_options/table.py"
VALIDATION, TEST = "services/gateway/admission/validation.py", f"tests/unit/gateway/test_{OPTION}.py"
FIELD = f"""
  // The most messages that the conversation may have, at least 1.
  optional int32 {OPTION} = {{number}};
"""
ROW = f"""    RequestOption("{OPTION}", Kind.WHOLE, "The most messages that the conversation may have.", least=1),
"""
USE = f"""    if request.HasField("{OPTION}") and len(request.messages) > request.{OPTION}:
        raise InvalidInput("messages", f"at most {{request.{OPTION}}}", len(request.messages))
"""
ITS_TEST = f'''"""A conversation may be limited by its caller."""

from __future__ import annotations

import pytest

from services.gateway.admission.validation import check
from services.runtime.errors import InvalidInput
from tests.unit.gateway.admission.test_validation import SETTINGS, request


def test_a_conversation_longer_than_its_caller_wants_is_refused() -> None:
    asked = request({OPTION}=1)
    check(asked, SETTINGS)
    asked.messages.add().CopyFrom(asked.messages[0])
    with pytest.raises(InvalidInput, match="messages: at most 1, got 2"):
        check(asked, SETTINGS)
'''
TESTS = [
    *(f"tests/contract/{name}.py" for name in ("test_request_options", "test_openapi", "test_sdk_page")),
    "tests/contract/test_generated.py::test_stubs_are_what_the_contracts_generate",
]


def checklist(tree: Path) -> Checklist:
    return Checklist(TITLE, dict(_written(tree)), [*TESTS, TEST])


def _written(tree: Path) -> Iterator[tuple[str, str]]:
    contract = (tree / PROTO).read_text()
    (message,) = re.findall(r"^message GenerateRequest \{\n.*?^\}\n", contract, re.MULTILINE | re.DOTALL)
    number = max(map(int, re.findall(r" = (\d+);", message))) + 1
    yield (
        PROTO,
        contract.replace(message, message.removesuffix("}\n") + FIELD.format(number=number).lstrip("\n") + "}\n"),
    )
    table = (tree / TABLE).read_text()
    yield TABLE, table.replace("\n)\n", f"\n{ROW})\n", 1)
    validation = (tree / VALIDATION).read_text()
    yield VALIDATION, validation.replace("    check_options(request)\n", f"    check_options(request)\n{USE}", 1)
    yield TEST, ITS_TEST
