"""Whether a fast model's answer will do: checks by name, each a function that says why it will not.

Another check is a function here and a line in `CHECKS`. None waits for anything. The judge is a model, which the stage
asks after all of these.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.config import CascadeSettings
from services.runtime.errors import shorten

_UNSURE = re.compile(
    r"\b(?:i (?:do not|don['’]t|can ?not|can['’]t) (?:know|say|tell|answer|help)"
    r"|i(?: am|['’]m) (?:not sure|unable|unsure)"
    r"|not (?:enough|sufficient) information|as an ai\b)",
    re.IGNORECASE,
)
_JUDGE = "Is your last answer right, complete and to the point? Say yes or no, and nothing else."
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_NO = re.compile(r"\W*no\b", re.IGNORECASE)
_LONGEST = 100_000  # characters that are looked through


@dataclass(slots=True)
class Tried:
    """A fast model's answer."""

    text: str = ""
    finish_reason: chat_pb2.FinishReason = chat_pb2.FINISH_REASON_UNSPECIFIED
    logprobs: list[float] = field(default_factory=list)  # of its tokens, as far as they are told


Check = Callable[[Tried, pb.GenerateRequest, CascadeSettings], str]


def refused(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """Why an answer will not do; empty where all that the request names are satisfied."""
    names = [CHECKS[name] for name in request.cascade.verifiers if name in CHECKS] or [_by_rules, _by_form]
    return next((why for check in names if (why := check(tried, request, settings))), "")


def to_judge(conversation: Iterable[chat_pb2.Message], answer: str) -> Iterator[chat_pb2.Message]:
    """What a judge reads: as far as it is the conversation, the engine need not read it again to answer by itself."""
    yield from conversation
    yield chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, content=answer)
    yield chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_JUDGE)


def verdict(said: str) -> bool | None:
    """What a judge says of an answer: whether it is right; None where that is not clear."""
    return True if _YES.match(said) else False if _NO.match(said) else None


def objection(said: str) -> str:
    """Why a judge is against an answer; empty where it is for it."""
    return "" if _YES.match(said) else f"the judge says {shorten(said.strip(), 20)!r}"


def _by_rules(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """It came to its end, says something, and does not say that it cannot."""
    if tried.finish_reason != chat_pb2.FINISH_REASON_STOP:
        return "it did not come to its end"
    if not tried.text.strip():
        return "it says nothing"
    unsure = _UNSURE.search(tried.text[:_LONGEST])
    return f"it says {unsure[0]!r}" if unsure else ""


def _by_form(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """It is JSON where that is asked for, of the schema's type and with all that it requires at the top."""
    form = request.response_format
    if not (form.json_object or form.json_schema):
        return ""
    try:
        given = json.loads(tried.text)
    except (ValueError, RecursionError):
        return "it is no JSON"
    wanted = json.loads(form.json_schema) if form.json_schema else {"type": "object"}
    if wanted.get("type") == "object" and not isinstance(given, dict):
        return "it is no JSON object"
    missing = [name for name in wanted.get("required", ()) if isinstance(given, dict) and name not in given]
    return f"it lacks {missing[0]!r}" if missing else ""


def _by_logprobs(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """It was sure of its words: their mean log-probability."""
    cascade = request.cascade
    least = cascade.min_mean_logprob if cascade.HasField("min_mean_logprob") else settings.min_mean_logprob
    if not tried.logprobs:
        return "its model tells no log-probabilities"
    mean = math.fsum(tried.logprobs) / len(tried.logprobs)
    return "" if mean >= least else f"a mean log-probability of {mean:.3f}, below {least:g}"


CHECKS: Mapping[int, Check] = {
    pb.VERIFIER_RULES: _by_rules,
    pb.VERIFIER_FORM: _by_form,
    pb.VERIFIER_LOGPROBS: _by_logprobs,
}
