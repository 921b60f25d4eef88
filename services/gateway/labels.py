"""The words that answers, traces and metrics use, each said once: `make docs` writes their tables from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Self


class Label(StrEnum):
    """A stable word, and what it `means`."""

    means: str

    def __new__(cls, word: str, means: str) -> Self:
        label = str.__new__(cls, word)
        label._value_, label.means = word, means
        return label


class Degraded(Label):
    """Why an answer is degraded (`Final.degraded`): a stage, and the problem."""

    AUDIO_BUDGET = "audio:budget", "no transcript within its slice"
    AUDIO_UNAVAILABLE = "audio:unavailable", "the recording could not be transcribed"
    VISION_BUDGET = "vision:budget", "no image labels within their slice; a patch may follow"
    VISION_UNAVAILABLE = "vision:unavailable", "the pictures could not be classified"
    CACHE_LOCAL = "cache:local", "Redis was down: one cache replica answered from its memory"
    QUOTA_LOCAL = "quota:local", "Redis was down: this gateway alone checked the quota"
    ROUTER_UNAVAILABLE = "router:unavailable", "no table from the router yet: the first model was used"
    ROUTER_FALLBACK = "router:fallback", "no model met the requirements: the fastest was used"
    PROMPT_SHORTENED = "prompt:shortened", "the oldest turns were left out"
    TOOLS_BUDGET = "tools:budget", "a tool was late; a patch may follow"
    TOOLS_UNAVAILABLE = "tools:unavailable", "a tool failed or was not reachable"
    TOOLS_LIMITED = "tools:limited", "a limit on tool calls or on their arguments was reached"
    GUARD_LATE = "guard:late", "the guard was late, and unchecked text passed"
    GUARD_WITHHELD = "guard:withheld", "the guard withheld a tool's result"
    GUARD_MASKED = "guard:masked", "the guard masked parts of the answer"
    CASCADE_KEPT = "cascade:kept", "the fast model's answer failed its checks, the better model sent none"
    FORM_CUT = "form:cut", "a cut answer does not match `response_format`"
    FORM_UNCHECKED = "form:unchecked", "no time to check `response_format`"
    RESPONSE_UNSTORED = "response:unstored", "the response is not stored: Redis was down, or a limit exceeded"
    LLM_CHOICES = "llm:choices", "the model's server gave fewer answers than `n`"
    LLM_BUDGET = "llm:budget", "the budget cut the text"
    LLM_INTERRUPTED = "llm:interrupted", "the model failed in mid-answer"
    LLM_REPLACED = "llm:replaced", "the chosen model failed, or was slower than one of a lower tier"
    LLM_RESUMED = "llm:resumed", "another call continued the text of a model that failed"
    LLM_STALE = "llm:stale", "an expired answer from the cache"
    LLM_TEMPLATE = "llm:template", "the fixed text"


LOCAL = (Degraded.CACHE_LOCAL, Degraded.QUOTA_LOCAL)  # without shared state the text is the same


class Bypassed(Label):
    """Why the cache was bypassed, or only exact hits were allowed (`CacheReport.reason`)."""

    REQUEST = "request", "the request says so: `cache.bypass`"
    TOOLS = "tools", "it has tools or their results"
    PREFIX = "prefix", "it continues a text"
    LOGPROBS = "logprobs", "it wants log-probabilities, which are not stored"
    PROVIDER = "provider", "it wants several answers, sound, files or searches"
    UNASKED = "unasked", "cached answers were not requested: `hits.others`, `cache.use`"
    NO_USER = "no_user", "it names no end user, with `hits.scope` or `cache.scope` `user`"
    SAMPLED = "sampled", "its `temperature` is above 0: `hits.sampled`"
    TIME_BOUND = "time_bound", "it asks about now, today, the latest: `hits.time_bound`"
    PERSONAL = "personal", "it asks about the user's own records: `hits.personal`"
    PRIVATE = "private", "the guard found secrets or personal data, or was not done"
    INCOMPLETE = "incomplete", "a picture or recording of the question is missing"
    TOO_LARGE = "too_large", "the cache does not store questions of this size or shape"
    LANGUAGE = "language", "another language: exact hits alone"
    NO_CACHE = "no_cache", "the gateway has no cache service"


class ToolOutcome(Label):
    """How a call of a tool ended (`hedgerow_tool_calls`)."""

    OK = "ok", "it answered in time"
    REUSED = "reused", "it was not called: an earlier result is still valid"
    FAILED = "failed", "it reported an error"
    LATE = "late", "it did not answer in time"
    UNAVAILABLE = "unavailable", "it was not reachable, or not called"
    WITHHELD = "withheld", "the tenant's guard withheld its result"


class Policy(StrEnum):
    """The policies that decide about a request (`Decision.policy`)."""

    HEDGE = "hedge"
    RETRY = "retry"
    FAILOVER = "failover"
    FALLBACK = "fallback"
    BREAKER = "breaker"
    LIMIT = "limit"
    SHED = "shed"
    QUOTA = "quota"
    SINGLE_FLIGHT = "single_flight"
    BUDGET = "budget"
    PREFIX = "prefix"
    PROMPT = "prompt"
    CASCADE = "cascade"
    FORM = "form"
    TOOL = "tool"
    GUARD = "guard"
    CACHE = "cache"
    DRILL = "drill"
    TARGET = "target"
    START = "start"


@dataclass(frozen=True, slots=True)
class Said:
    """A policy and what it did (`Decision.action`), and what that `means`."""

    policy: Policy
    action: str
    means: str


class Act(Enum):
    """The actions of policies for a request."""

    HEDGE_STARTED = Said(Policy.HEDGE, "started", "The first text was late; a second replica was called.")
    HEDGE_WON = Said(Policy.HEDGE, "won", "The second call was first.")
    HEDGE_SKIPPED = Said(Policy.HEDGE, "skipped", "No budget, slot or healthy replica for a hedge.")
    RETRY_STARTED = Said(Policy.RETRY, "started", "A call that failed before its first text was repeated.")
    FAILOVER_STARTED = Said(Policy.FAILOVER, "started", "Another replica continues a broken stream.")
    FAILOVER_FAILED = Said(Policy.FAILOVER, "failed", "The other replica broke too.")
    FAILOVER_IMPOSSIBLE = Said(Policy.FAILOVER, "impossible", "A stream broke, and no replica can continue it.")
    FALLBACK_STARTED = Said(Policy.FALLBACK, "started", "Another model was asked.")
    FALLBACK_STALE = Said(Policy.FALLBACK, "stale", "An expired answer of the cache was sent.")
    FALLBACK_TEMPLATE = Said(Policy.FALLBACK, "template", "The fixed text was sent.")
    FALLBACK_SKIPPED = Said(Policy.FALLBACK, "skipped", "An optional stage failed.")
    FALLBACK_LOCAL = Said(Policy.FALLBACK, "local", "One cache replica answered without Redis.")
    FALLBACK_BYPASSED = Said(Policy.FALLBACK, "bypassed", "The cache does not store questions like this one.")
    BREAKER_REFUSED = Said(Policy.BREAKER, "refused", "Every replica's breaker is open.")
    BREAKER_SKIPPED = Said(Policy.BREAKER, "skipped", "The breaker of an optional stage is open.")
    LIMIT_WAITED = Said(Policy.LIMIT, "waited", "The request waited for a slot at the model.")
    LIMIT_THROUGHPUT_DROP = Said(Policy.LIMIT, "throughput_drop", "Tokens are much slower than the model's baseline.")
    SHED_REFUSED = Said(Policy.SHED, "refused", "Refused because of load, pressure or a full queue.")
    QUOTA_REFUSED = Said(Policy.QUOTA, "refused", "The tenant exceeded a quota.")
    QUOTA_LOCAL = Said(Policy.QUOTA, "local", "This gateway checked the quota without Redis.")
    SINGLE_FLIGHT_JOINED = Said(Policy.SINGLE_FLIGHT, "joined", "It shares the generation of an equal request.")
    BUDGET_SKIPPED = Said(Policy.BUDGET, "skipped", "An optional stage exceeded its slice or had no time.")
    BUDGET_CUT = Said(Policy.BUDGET, "cut", "The budget cut the text.")
    PREFIX_MATCHED = Said(Policy.PREFIX, "matched", "The replica has read this prompt's prefix before.")
    PROMPT_COMPRESSED = Said(Policy.PROMPT, "compressed", "The prompt was compressed.")
    PROMPT_SHORTENED = Said(Policy.PROMPT, "shortened", "The oldest turns were left out or summarized.")
    CASCADE_PASSED = Said(Policy.CASCADE, "passed", "The fast model's answer passed its checks.")
    CASCADE_ESCALATED = Said(Policy.CASCADE, "escalated", "It failed; the better model was asked.")
    CASCADE_KEPT = Said(Policy.CASCADE, "kept", "The better model sent no answer.")
    FORM_VALID = Said(Policy.FORM, "valid", "The answer matches `response_format`.")
    FORM_CONSTRAINED = Said(Policy.FORM, "constrained", "The engine constrained the answer to a grammar.")
    FORM_REPAIRED = Said(Policy.FORM, "repaired", "The repaired answer matches.")
    FORM_FAILED = Said(Policy.FORM, "failed", "The answer does not match.")
    FORM_UNCHECKED = Said(Policy.FORM, "unchecked", "The answer could not be checked in time.")
    TOOL_REUSED = Said(Policy.TOOL, "reused", "An earlier result is still valid.")
    TOOL_LATE = Said(Policy.TOOL, "late", "The tool was late; a patch may follow.")
    TOOL_FAILED = Said(Policy.TOOL, "failed", "The tool reported an error.")
    TOOL_UNAVAILABLE = Said(Policy.TOOL, "unavailable", "Not reachable, or refused by its breaker or queue.")
    TOOL_RETRIED = Said(Policy.TOOL, "retried", "An idempotent call that was UNAVAILABLE was repeated.")
    TOOL_REFUSED = Said(Policy.TOOL, "refused", "Unknown tool, or arguments that are invalid or too large.")
    TOOL_REPEATED = Said(Policy.TOOL, "repeated", "The model repeated a call and had to answer.")
    TOOL_CAPPED = Said(Policy.TOOL, "capped", "The model reached the limit of calls and had to answer.")
    TOOL_OUT_OF_TIME = Said(Policy.TOOL, "out_of_time", "No time for another call: the model had to answer.")
    TOOL_SKIPPED = Said(Policy.TOOL, "skipped", "The model cannot call tools and answers without.")
    TOOL_CUT = Said(Policy.TOOL, "cut", "A result was cut to its size limit.")
    TOOL_DROPPED = Said(Policy.TOOL, "dropped", "A call of the caller's own tool ended the answer first.")
    GUARD_NOTED = Said(Policy.GUARD, "noted", "A probable prompt injection was not refused.")
    GUARD_REFUSED = Said(Policy.GUARD, "refused", "A rule refused the request, or withheld a tool's result.")
    GUARD_MASKED_INPUT = Said(Policy.GUARD, "masked_input", "Parts of the prompt or of a tool's result were masked.")
    GUARD_BYPASSED = Said(Policy.GUARD, "bypassed", "Not cached: secrets or personal data.")
    GUARD_MASKED = Said(Policy.GUARD, "masked", "Parts of the answer were masked.")
    GUARD_ENDED = Said(Policy.GUARD, "ended", "The answer ends before a finding.")
    GUARD_LATE = Said(Policy.GUARD, "late", "The guard was late; the reason has the consequence.")
    CACHE_BYPASSED = Said(Policy.CACHE, "bypassed", "This kind of question is not cached.")
    CACHE_STALE = Said(Policy.CACHE, "stale", "An expired answer was sent, and a new one is generated.")
    CACHE_EXACT = Said(Policy.CACHE, "exact", "This kind of question gets exact hits only.")
    DRILL_DROPPED = Said(Policy.DRILL, "dropped", "A drill refused the call.")
    DRILL_DELAYED = Said(Policy.DRILL, "delayed", "A drill delayed the call.")
    DRILL_ABORTED = Said(Policy.DRILL, "aborted", "A drill aborted the call.")
    START_WAITED = Said(Policy.START, "waited", "The call waited for the model to start or to come back.")
    TARGET_MISSED_P50 = Said(Policy.TARGET, "missed_p50", "A stage took longer than its target at p50.")
    TARGET_MISSED_P95 = Said(Policy.TARGET, "missed_p95", "The same at p95.")
    TARGET_MISSED_P99 = Said(Policy.TARGET, "missed_p99", "The same at p99.")
