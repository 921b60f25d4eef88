"""The checklist "Add a request option" of CONTRIBUTING.md, followed in a copy of the tree: a few files by hand and one
command, and every surface has the option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.contract.checklists import checklist, passing

MOST_FILES = 5
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
SURFACES = [
    f"test_the_sdk_passes_an_option_on[{OPTION}]",
    *(
        f"test_the_http_api_passes_an_option_on_from_the_body_and_from_a_header[{OPTION}-{read}]"
        for read in ("read_chat", "read_completion", "read_messages", "read_response")
    ),
    f"test_the_command_line_passes_an_option_on[{OPTION}]",
    f"test_by_grpc_a_value_outside_of_the_limits_is_refused[{OPTION}-0]",
    "test_openais_client_passes_every_option_on_in_extra_body",
    "test_the_page_lists_them_as_they_are",
    "test_stubs_are_what_the_contracts_generate",
    "test_a_conversation_longer_than_its_caller_wants_is_refused",
]


def test_an_option_is_added_by_the_checklist_in_at_most_five_files(tree: Path) -> None:
    by_hand = dict(written(tree))
    assert len(by_hand) <= MOST_FILES
    followed = checklist(tree, "Add a request option", by_hand)
    assert {path for path in by_hand if f"`{path}`" in followed} == {PROTO, TABLE}

    tests = ("test_request_options", "test_openapi", "test_sdk_page", "test_stubs")
    passed = passing(tree, *(f"tests/contract/{name}.py" for name in tests), TEST)
    assert [name for name in SURFACES if name not in passed] == []


def written(tree: Path) -> Iterator[tuple[str, str]]:
    """The files of the checklist's first steps, as they become."""
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
