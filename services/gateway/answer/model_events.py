"""What a model writes, as it goes into the account and to the client: for every stage that hands words on."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.draft import Draft

_SAID = ("delta", "reasoning", "tool_call")


async def take(draft: Draft, item: llm_pb2.GenerateResponse, *, relays: bool = False) -> None:
    """All that is in one message: thoughts before the text, calls after it. `relays`: the client reads the events of
    the provider that it was read from, unless what is said is looked through, or replaces something."""
    with draft.writer.together() as start:
        await _take(draft, item)
        if relays and item.relayed and not (draft.voice.screens or draft.voice.replacing):
            _relay(draft.writer.events, item.relayed, start)


async def _take(draft: Draft, item: llm_pb2.GenerateResponse) -> None:
    ledger, tokens = draft.ledger, item.tokens
    if item.reasoning:
        spent, tokens = (0, tokens) if item.text else (tokens, 0)
        await draft.voice.think(item.reasoning, spent)
    if item.text:
        await draft.voice.say(item.text, tokens, item.logprobs)
    if item.tool_calls:
        await draft.voice.release()
    if item.tool_calls and not ledger.finish_reason:
        ledger.written.add_calls(item.tool_calls, 0 if item.text else tokens)
        draft.writer.write(*(pb.Event(tool_call=delta) for delta in item.tool_calls))


def _relay(events: list[pb.Event], relayed: Sequence[bytes], start: int) -> None:
    """Send on what the provider has sent, which says what `events` have from `start` on."""
    for event in events[start:]:
        event.in_relayed = event.WhichOneof("kind") in _SAID  # another stage may have told of itself meanwhile
    events.insert(start, pb.Event(relayed=pb.Relayed(events=relayed)))
