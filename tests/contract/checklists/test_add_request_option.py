"""The checklist "Add a request option" of CONTRIBUTING.md, followed in a copy of the tree: a few files by hand and one
command, and every surface has the option."""

from __future__ import annotations

import pytest

from tests.contract.checklists.following import Followed
from tests.contract.checklists.message_limit import OPTION, PROTO, TABLE, TITLE

# Their commands use 30 s of a processor, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)
MOST_FILES = 5
SURFACES = [
    f"test_the_sdk_passes_an_option_on[{OPTION}]",
    *(
        f"test_the_http_api_passes_an_option_on_from_the_body_and_from_a_header[{OPTION}-{read}]"
        for read in ("read_chat", "read_completion", "read_messages", "read_response")
    ),
    f"test_the_command_line_passes_an_option_on[{OPTION}]",
    f"test_by_grpc_a_value_outside_of_the_limits_is_refused[{OPTION}-0]",
    "test_openais_client_passes_every_option_on_in_extra_body",
    "test_the_page_of_the_sdk_is_up_to_date",
    "test_stubs_are_what_the_contracts_generate",
    "test_a_conversation_longer_than_its_caller_wants_is_refused",
]


def test_an_option_is_added_by_the_checklist_in_at_most_five_files(followed: Followed) -> None:
    files = followed.by_hand[TITLE]
    assert len(files) <= MOST_FILES
    assert {path for path in files if f"`{path}`" in followed.texts[TITLE]} == {PROTO, TABLE}
    assert [name for name in SURFACES if name not in followed.passed] == []
