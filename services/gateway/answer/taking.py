"""What a model writes, as it goes into the account and to the client: for every stage that hands words on."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.draft import Draft


def take(draft: Draft, item: llm_pb2.GenerateResponse) -> None:
    """All that is in one message: thoughts before the text, calls after it."""
    ledger, outbox, tokens = draft.ledger, draft.outbox, item.tokens
    if item.reasoning:
        spent, tokens = (0, tokens) if item.text else (tokens, 0)
        ledger.written.add_reasoning(item.reasoning, spent)
        outbox.append(pb.Event(reasoning=pb.ReasoningDelta(text=item.reasoning, tokens=spent)))
    if item.text:
        ledger.written.add_text(item.text, tokens, item.logprobs)
        outbox.append(pb.Event(delta=pb.TextDelta(text=item.text, tokens=tokens, logprobs=item.logprobs)))
    if item.tool_calls:
        ledger.written.add_calls(item.tool_calls, 0 if item.text else tokens)
        outbox.extend(pb.Event(tool_call=delta) for delta in item.tool_calls)
