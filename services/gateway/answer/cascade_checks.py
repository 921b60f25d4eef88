"""Whether a fast model's answer will do: checks by name, each a function that says why it will not.

Another check is a function here and a line in `CHECKS`. None waits for anything. After all of these the stage has the
form checked, beside the event loop, and asks the judge, which is a model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.collect import Tried
from services.gateway.settings.generation import CascadeSettings

_UNSURE = re.compile(
    r"\b(?:i (?:do not|don['’]t|can ?not|can['’]t) (?:know|say|tell|answer|help)"
    r"|i(?: am|['’]m) (?:not sure|unable|unsure)"
    r"|not (?:enough|sufficient) information|as an ai\b)",
    re.IGNORECASE,
)
_USUAL = (pb.VERIFIER_RULES, pb.VERIFIER_FORM)
_LONGEST = 100_000  # characters that are looked through


Check = Callable[[Tried, pb.GenerateRequest, CascadeSettings], str]


def refused(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """Why an answer will not do; empty where all that the request names are satisfied."""
    checks = [CHECKS[name] for name in _named(request) if name in CHECKS]
    return next((why for check in checks if (why := check(tried, request, settings))), "")


def has_form_checked(request: pb.GenerateRequest) -> bool:
    """Whether an answer has to match what it is asked to match."""
    return request.HasField("response_format") and pb.VERIFIER_FORM in _named(request)


def _named(request: pb.GenerateRequest) -> Sequence[int]:
    return request.cascade.verifiers or _USUAL


def _by_rules(tried: Tried, request: pb.GenerateRequest, settings: CascadeSettings) -> str:
    """It came to its end, says something, and does not say that it cannot."""
    if tried.finish_reason != chat_pb2.FINISH_REASON_STOP:
        return "it did not come to its end"
    if not tried.text.strip():
        return "it says nothing"
    unsure = _UNSURE.search(tried.text[:_LONGEST])
    return f"it says {unsure[0]!r}" if unsure else ""


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
    pb.VERIFIER_LOGPROBS: _by_logprobs,
}
