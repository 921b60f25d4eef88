"""The words that answers, traces and metrics use, each said once: docs/labels.md is made from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Label(StrEnum):
    """A stable word, and what it `means`."""

    means: str

    def __new__(cls, word: str, means: str) -> Self:
        label = str.__new__(cls, word)
        label._value_, label.means = word, means
        return label


class Degraded(Label):
    """In what way an answer is less than it could be (`Final.degraded`): a stage, and what became of it."""

    AUDIO_BUDGET = "audio:budget", "the recording was not heard within its slice"
    AUDIO_UNAVAILABLE = "audio:unavailable", "the recording could not be heard"
    VISION_BUDGET = "vision:budget", "the pictures were not seen within their slice; a patch may still come"
    VISION_UNAVAILABLE = "vision:unavailable", "the pictures could not be seen"
    CACHE_LOCAL = "cache:local", "Redis was away: one replica's own memory was asked"
    QUOTA_LOCAL = "quota:local", "Redis was away: this gateway alone decided on the quota"
    ROUTER_UNAVAILABLE = "router:unavailable", "no table from the router yet: the first model was taken"
    ROUTER_FALLBACK = "router:fallback", "no model met the demand: the fastest was taken"
    LLM_BUDGET = "llm:budget", "the text was cut off at the budget"
    LLM_INTERRUPTED = "llm:interrupted", "the model broke in mid-answer, and no other could go on"
    LLM_REPLACED = "llm:replaced", "another model than the one chosen has answered"
    LLM_RESUMED = "llm:resumed", "the model broke in mid-answer, and another call went on from its text"
    LLM_STALE = "llm:stale", "an answer from the cache whose time is over, in place of the model's"
    LLM_TEMPLATE = "llm:template", "the fixed text, in place of the model's"


LOCAL = (Degraded.CACHE_LOCAL, Degraded.QUOTA_LOCAL)  # that shared state was away says nothing of the text


class Policy(Label):
    """Who has decided something about a request (`Decision.policy`)."""

    BUDGET = "budget", "a stage or a text was cut off, or left out for want of time"
    HEDGE = "hedge", "a second call for a late first text"
    RETRY = "retry", "another call for one that failed before its first text"
    FAILOVER = "failover", "another call for the rest of a text that broke"
    FALLBACK = "fallback", "something else than was meant: another model, an old answer, a fixed text, none"
    BREAKER = "breaker", "a backend that fails was not called"
    LIMIT = "limit", "a place was waited for, or a model is getting slower"
    SHED = "shed", "refused under load"
    QUOTA = "quota", "a tenant's quota"
    SINGLE_FLIGHT = "single_flight", "an equal question was under way already"
    TARGET = "target", "a latency target was missed"
    PREFIX = "prefix", "the replica that has read the prompt's beginning was chosen"
    DRILL = "drill", "a fault on purpose"
