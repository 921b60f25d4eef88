"""The kind of a question, by its words (bound to the time, about the user's own records, or neither), and what the
cache may do for it.

The words are in `kinds.toml`. Of a long text only the beginning and the end are read: the question about a document
stands before or after it, and a date within it is not the question.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.cache_eligibility.settings import Hits, HitSettings
from services.gateway.cache_eligibility.wording import Wording, plain, wording
from services.gateway.labels import Bypassed

KINDS = "time_bound", "personal"
_END = 1_024  # characters of a text's beginning, and of its end
_MOST_READ = 8_192  # characters of a conversation
_STRICTNESS: Mapping[Hits, int] = {"off": 0, "exact": 1, "any": 2}
_KINDS = {"time_bound": Bypassed.TIME_BOUND, "personal": Bypassed.PERSONAL}
_ASKED: Mapping[int, Hits] = {pb.CACHE_USE_EXACT: "exact", pb.CACHE_USE_ANY: "any"}
_ALLOWED: Mapping[int, Bypassed] = {
    pb.QUESTION_KIND_SAMPLED: Bypassed.SAMPLED,
    pb.QUESTION_KIND_TIME_BOUND: Bypassed.TIME_BOUND,
    pb.QUESTION_KIND_PERSONAL: Bypassed.PERSONAL,
}


@cache
def wordings() -> Mapping[str, Wording]:
    read = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text("utf-8"))
    return {kind: Wording(**read[kind], lists=read["lists"]) for kind in KINDS}


def kinds(texts: Iterable[str]) -> Mapping[str, str]:
    """The kinds of a question, each with the words that make it one. `texts`: from `looked_at`."""
    found: dict[str, str] = {}
    for text in texts:
        for kind, known_by in wordings().items():
            if kind not in found and (words := known_by.find(text)):
                found[kind] = words
    return found


def looked_at(texts: Iterable[str]) -> list[str]:
    """The parts of the user's messages that are read, the latest first: 8,192 characters at most."""
    read, left = list[str](), _MOST_READ
    for text in texts:
        if left <= 0:
            break
        read.append(plain(text if len(text) <= 2 * _END else f"{text[:_END]}\n{text[-_END:]}"))
        left -= len(read[-1])
    return read


@dataclass(frozen=True, slots=True)
class CacheEligibility:
    """`reason`, where hits are not `any`: the kind that restricts them; `words`: the words of the question that make it
    of this kind. `ttl_ms`: how long its answer is kept; `max_wrong`: wrong hits allowed, as a share of its category's
    lookups; None for the cache's own value. `drawn`: each request gets an answer of its own, also two equal ones at the
    same moment. `of_user`: the answer is shared with the same end user only."""

    allowed_hits: Hits = "any"
    reason: Bypassed | None = None
    words: str = ""
    category: str = ""
    ttl_ms: int | None = None
    max_wrong: float | None = None
    drawn: bool = False
    of_user: bool = False


ANY = CacheEligibility()
_MOST_BYTES = MAX_MESSAGE_BYTES // 2  # of a question; the cache's own limit is far lower, unless it is set to another


def within(choice: CacheEligibility, question_bytes: int) -> CacheEligibility:
    """The eligibility, or `off` for a question that is too large for a cache."""
    if choice.allowed_hits == "off" or question_bytes <= _MOST_BYTES:
        return choice
    return replace(choice, allowed_hits="off", reason=Bypassed.TOO_LARGE)


def choose(
    policy: pb.CachePolicy,
    sampling: chat_pb2.Sampling,
    said: Iterable[str],
    settings: HitSettings,
    *,
    names_user: bool = False,
) -> CacheEligibility:
    """The choice for a question. `said`: the user's messages, the latest first; `names_user`: whether the request names
    its end user."""
    of_user = settings.scope == "user" or policy.scope == pb.CACHE_SCOPE_USER
    choice = _choose(policy, sampling, said, settings)
    if of_user and not names_user and choice.allowed_hits != "off":
        return CacheEligibility("off", Bypassed.NO_USER, category=choice.category, drawn=True)
    return replace(choice, of_user=of_user, drawn=choice.drawn or (of_user and not names_user))


def _choose(
    policy: pb.CachePolicy, sampling: chat_pb2.Sampling, said: Iterable[str], settings: HitSettings
) -> CacheEligibility:
    texts = looked_at(said)
    category = policy.category or _category(texts, settings)
    kept = settings.categories.get(category)
    asked = _ASKED.get(policy.use, settings.others)
    if asked == "off":
        return CacheEligibility("off", Bypassed.UNASKED, category=category, drawn=True)
    found = {_KINDS[kind]: words for kind, words in kinds(texts).items()}
    if sampling.temperature > 0:
        found[Bypassed.SAMPLED] = f"a temperature of {sampling.temperature:g}"
    allowed = {_ALLOWED[kind] for kind in policy.allow if kind in _ALLOWED}
    seeded = sampling.HasField("seed")
    bounds = {
        reason: _allowed_hits(reason, settings, allowed, seeded=seeded, kept=kept is not None) for reason in found
    }
    bounds[Bypassed.UNASKED] = asked
    choice = CacheEligibility(category=category, drawn=bounds.get(Bypassed.SAMPLED) == "off")
    if kept:
        choice = replace(choice, ttl_ms=kept.ttl_ms, max_wrong=kept.max_wrong)
    reason = min(bounds, key=lambda each: _STRICTNESS[bounds[each]])
    if bounds[reason] == "any":
        return choice
    return replace(choice, allowed_hits=bounds[reason], reason=reason, words=found.get(reason, ""))


def _allowed_hits(
    reason: Bypassed, settings: HitSettings, allowed: Collection[Bypassed], *, seeded: bool, kept: bool
) -> Hits:
    if reason in allowed:
        return "any"
    said: Hits = getattr(settings, reason)
    bounded = (reason is Bypassed.SAMPLED and seeded) or (reason is Bypassed.TIME_BOUND and kept)
    return "exact" if bounded and said == "off" else said


def _category(texts: Iterable[str], settings: HitSettings) -> str:
    """The first whose words the texts have; empty where there is none."""
    if not settings.categories:
        return ""
    texts = list(texts)
    for name, category in settings.categories.items():
        if category.words and any(map(wording(category.words).find, texts)):
            return name
    return ""
