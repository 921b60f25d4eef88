"""Texts, classified by OpenAI's moderations: by the guard, which looks for other things than OpenAI's models do.

The categories of OpenAI are there because its clients read them. The score of one that nothing looked for applies to no
input type, which is how that API says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from services.gateway.admission.identity import Tenant
from services.gateway.errors import ModelUnknown
from services.gateway.guard import injection
from services.gateway.guard.checks import Checks, everything
from services.gateway.guard.denied import TooSlow
from services.gateway.guard.screen import AT_ONCE, Screen
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission, TextInputs, read_texts, tokens_of
from services.gateway.http.endpoints.providers import ANY
from services.gateway.http.fields import Fields
from services.gateway.http.server.exchange import Exchange
from services.runtime.aside import give_way
from services.runtime.deadline import Deadline
from services.runtime.errors import TooLate
from services.runtime.limits import CONTENT_BYTES
from services.runtime.security.private_data import Finding, Kind
from services.runtime.strict_json import compact

MODEL = "hedgerow-guard"
_MOST_TEXTS = 256
_OPENAIS = (
    "hate", "hate/threatening", "harassment", "harassment/threatening", "illicit", "illicit/violent", "self-harm",
    "self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip
Category = Literal["injection", "secrets", "personal", "denied"]
_OF_KIND: Mapping[Kind, Category] = {"secret": "secrets", "personal": "personal", "denied": "denied"}


@dataclass(slots=True)
class _Moderation:
    """`rules` has those that found something, by their categories; `injection` is the classifier's probability."""

    rules: dict[Category, Counter[str]] = field(default_factory=dict)
    injection: float = 0.0

    def note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.rules.setdefault(_OF_KIND[finding.kind], Counter())[finding.rule] += 1

    def note_injection(self, piece: str, least: float) -> None:
        rule = injection.by_pattern(piece)
        score = 1.0 if rule else injection.probability(piece)
        self.injection = max(self.injection, score)
        if score >= least:
            self.rules.setdefault("injection", Counter())[rule or injection.CLASSIFIER] += 1

    def to_json(self, checks: Checks) -> dict[str, Any]:
        scores: dict[Category, float] = {"injection": self.injection, "secrets": 0.0, "personal": 0.0}
        if checks.denied:
            scores["denied"] = 0.0
        scores |= {category: 1.0 for category in self.rules if category != "injection"}
        return {
            "flagged": bool(self.rules),
            "categories": {**dict.fromkeys(_OPENAIS, False), **{each: each in self.rules for each in scores}},
            "category_scores": {**dict.fromkeys(_OPENAIS, 0.0), **scores},
            "category_applied_input_types": {**{each: [] for each in _OPENAIS}, **{each: ["text"] for each in scores}},
            "hedgerow": {"rules": {category: dict(found) for category, found in self.rules.items()}},
        }


class Moderations:
    """Serves `/v1/moderations`."""

    def __init__(self, admission: EndpointAdmission):
        self._admission = admission

    async def __call__(self, exchange: Exchange, body: Fields | None = None, others: Sequence[str] = ()) -> None:
        """`others`: models that may be named besides."""
        body, settings = body or await exchange.fields(), self._admission.settings
        given = _read_input(body, min(settings.max_content_bytes, CONTENT_BYTES))
        if (model := body.text("model") or MODEL) not in (MODEL, *ANY):
            raise ModelUnknown(model, ", ".join((*others, MODEL, *ANY)))
        tenant = exchange.credential.tenant
        checks = everything(tenant.guard)
        async with self._admission.admitted(exchange, tokens=given.tokens) as admitted:
            deadline = Deadline.after(admitted.timeout_s)
            verdicts = [await self._verdict(text, checks, tenant, deadline) for text in given.texts]
            results = [verdict.to_json(checks) for verdict in verdicts]
            response = {"id": f"modr-{exchange.answer_id}", "model": MODEL, "results": results}
            await exchange.reply.whole(200, compact(response))

    async def _verdict(self, text: str, checks: Checks, tenant: Tenant, deadline: Deadline) -> _Moderation:
        verdict = _Moderation()
        steps, more = _scan_text(text, checks, verdict), True
        while more:
            await give_way(tenant.name, tenant.weight)
            try:
                more = next(steps, False)
            except TooSlow as problem:
                raise TooLate(f"moderations: {problem}") from None
            if more and deadline.is_over():
                raise TooLate("moderations: not done within the budget of the request")
        return verdict


def _read_input(body: Fields, most_bytes: int) -> TextInputs:
    """Texts, or the parts of one input, which must be texts too: the guard reads no pictures."""
    if not isinstance(given := body.seen("input"), list) or not any(isinstance(each, dict) for each in given):
        return read_texts(body, "input", _MOST_TEXTS, most_bytes)
    parts = body.objects("input", _MOST_TEXTS)
    for part in parts:
        if part.needed("type") != "text":
            raise part.wrong("type", "text")
    texts = ["\n".join(part.needed("text") for part in parts)]
    return TextInputs(texts, tokens_of("input", texts, most_bytes))


def _scan_text(text: str, checks: Checks, verdict: _Moderation) -> Iterator[bool]:
    """Look for everything in `text`, in steps. Raises `TooSlow`."""
    screen = Screen(checks.masks, checks.denied)
    for at in range(0, len(text), AT_ONCE):
        verdict.note(screen.feed(text[at : at + AT_ONCE]).findings)
        yield True
    verdict.note(screen.close().findings)
    for piece in injection.pieces(text):
        verdict.note_injection(piece, checks.settings.injection_score)
        yield True
