"""The results of a stage after its slice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.runner import AnswerRunner


@pytest.mark.parametrize(("incomplete", "text", "comes"), [(True, "Par", 1), (True, "", 0), (False, "Par", 0)])
def test_a_patch_is_sent_for_incomplete_input_and_never_before_the_first_text(
    incomplete: bool, text: str, comes: int
) -> None:
    answer = object.__new__(AnswerRunner)
    patch = pb.Patch(stage="audio", text="what was heard")
    answer._context = SimpleNamespace(inputs=SimpleNamespace(incomplete=incomplete))  # type: ignore[assignment]
    answer._ledger = SimpleNamespace(written=SimpleNamespace(text=text), final=pb.Final())  # type: ignore[assignment]
    answer._started = {"audio": SimpleNamespace(patches=lambda: [patch])}  # type: ignore[dict-item]
    assert list(answer._late()) == [pb.Event(patch=patch)] * comes
    assert answer._ledger.final.patches == [patch] * comes
