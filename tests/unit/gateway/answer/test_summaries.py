"""Summaries: the text that a model is asked to summarize, and the ones that are kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from services.gateway.answer import summaries
from services.gateway.answer.summaries import Summaries
from services.gateway.prompt import window
from services.gateway.settings.prompt import PromptSettings
from tests.unit.gateway.admission.tenants_file import tenant
from tests.unit.gateway.prompt.conversations import chatter, said


@pytest.mark.parametrize("length", [1, 5, 400])
@pytest.mark.parametrize("content", ["A word. ", "word ", "Wörter und mehr.\n", "一个字。"])
def test_only_the_end_of_long_turns_is_looked_at(monkeypatch: pytest.MonkeyPatch, length: int, content: str) -> None:
    turns = [
        (said("user", content * length), said("assistant", f"{number}."), said("tool", "")) for number in range(99)
    ]
    looked = Mock(side_effect=window.shortened)
    monkeypatch.setattr(window, "shortened", looked)
    _, asked = summaries._asked(turns)
    whole = "\n".join(f"User: {content * length}\nAssistant: {number}." for number in range(99))
    assert asked.content == (looked.side_effect(whole, 4_096) or whole[-1_024:])
    assert len(looked.call_args.args[0]) < 10_000


async def test_one_tenant_leaves_room_for_the_summaries_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "ask", AsyncMock(side_effect=asyncio.Event().wait))
    kept, acme, other = Summaries(PromptSettings(), Mock(), Mock()), tenant(), replace(tenant(), name="other")
    ordered = [bool(kept.order(acme, [tuple(chatter(turns))])) for turns in range(1, 6)]
    assert ordered == [True, True, False, False, False]
    assert kept.order(other, [tuple(chatter(1))]), "the same turns of another tenant are another summary"
    await kept.close()


async def test_a_summary_that_is_used_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "_KEPT_BYTES", 800)  # two of them
    monkeypatch.setattr(summaries, "ask", AsyncMock(return_value="They spoke."))
    kept, acme = Summaries(PromptSettings(), Mock(), Mock()), tenant()
    first, second, third = ([tuple(chatter(turns))] for turns in (1, 2, 3))
    for turns in (first, second, third):
        assert kept.order(acme, turns)
        await asyncio.sleep(0.01)
        assert kept.find(acme, first) == "They spoke."
    assert kept.find(acme, second) == ""
