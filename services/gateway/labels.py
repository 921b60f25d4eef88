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
    """In what way an answer is less than it could be (`Final.degraded`): a stage, and what became of it."""

    AUDIO_BUDGET = "audio:budget", "the recording was not heard within its slice"
    AUDIO_UNAVAILABLE = "audio:unavailable", "the recording could not be heard"
    VISION_BUDGET = "vision:budget", "the pictures were not seen within their slice; a patch may still come"
    VISION_UNAVAILABLE = "vision:unavailable", "the pictures could not be seen"
    CACHE_LOCAL = "cache:local", "Redis was away: one replica's own memory was asked"
    QUOTA_LOCAL = "quota:local", "Redis was away: this gateway alone decided on the quota"
    ROUTER_UNAVAILABLE = "router:unavailable", "no table from the router yet: the first model was taken"
    ROUTER_FALLBACK = "router:fallback", "no model met the demand: the fastest was taken"
    PROMPT_SHORTENED = "prompt:shortened", "the oldest turns are left out: the model's context does not hold them"
    TOOLS_BUDGET = "tools:budget", "a tool had not answered in its time; a patch may still come"
    TOOLS_UNAVAILABLE = "tools:unavailable", "a tool failed, or could not be called"
    TOOLS_LIMITED = "tools:limited", "the model wanted more of its tools than it may have"
    GUARD_LATE = "guard:late", "the guard was not done in time, and lets pass what it has not seen"
    GUARD_WITHHELD = "guard:withheld", "the guard lets nobody read what a tool has said"
    GUARD_MASKED = "guard:masked", "names stand in the answer for what the guard has found in it"
    CASCADE_KEPT = (
        "cascade:kept",
        "the fast model's answer, which did not pass, as it was streamed: the better one's did not come",
    )
    FORM_CUT = "form:cut", "the answer does not match `response_format`: it was cut at `max_tokens` or the context"
    FORM_UNCHECKED = "form:unchecked", "nobody could say in time whether the answer matches `response_format`"
    LLM_BUDGET = "llm:budget", "the text was cut off at the budget"
    LLM_INTERRUPTED = "llm:interrupted", "the model broke in mid-answer, and no other could go on"
    LLM_REPLACED = "llm:replaced", "another model than the one chosen has answered"
    LLM_RESUMED = "llm:resumed", "the model broke in mid-answer, and another call went on from its text"
    LLM_STALE = "llm:stale", "an answer from the cache whose time is over, in place of the model's"
    LLM_TEMPLATE = "llm:template", "the fixed text, in place of the model's"


LOCAL = (Degraded.CACHE_LOCAL, Degraded.QUOTA_LOCAL)  # that shared state was away says nothing of the text


class ToolOutcome(Label):
    """How a call of a tool ended (`hedgerow_tool_calls`)."""

    OK = "ok", "it answered in time"
    REUSED = "reused", "it was not called: a result that it had told before still counts"
    FAILED = "failed", "it answered that it could not do it"
    LATE = "late", "it had not answered in its time"
    UNAVAILABLE = "unavailable", "it could not be reached, or was not called"
    WITHHELD = "withheld", "it answered what the tenant's guard lets nobody read"


class Policy(StrEnum):
    """Who has decided something about a request (`Decision.policy`)."""

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
    """A policy and what it did (`Decision.action`), what that `means`, and the `settings` it goes by."""

    policy: Policy
    action: str
    means: str
    settings: str


class Act(Enum):
    """What a policy may do for a request."""

    HEDGE_STARTED = Said(
        Policy.HEDGE,
        "started",
        "The first text was late; a second replica was called. The reason says what the moment goes by: recent first "
        "texts, those of ten minutes, or what is expected.",
        "`hedge`",
    )
    HEDGE_WON = Said(Policy.HEDGE, "won", "The second call was first.", "`hedge`")
    HEDGE_SKIPPED = Said(
        Policy.HEDGE,
        "skipped",
        "It was late, but there was no budget, no place to spare, or no healthy replica.",
        "`hedge.max_share`",
    )
    RETRY_STARTED = Said(
        Policy.RETRY,
        "started",
        "A call was UNAVAILABLE before its first text, or silent; another was made.",
        "",
    )
    FAILOVER_STARTED = Said(
        Policy.FAILOVER, "started", "A stream broke; another replica goes on from its text.", "`stall_ms`"
    )
    FAILOVER_FAILED = Said(Policy.FAILOVER, "failed", "The other replica broke too.", "")
    FAILOVER_IMPOSSIBLE = Said(Policy.FAILOVER, "impossible", "A stream broke, and nobody can go on.", "")
    FALLBACK_STARTED = Said(Policy.FALLBACK, "started", "Another model was asked.", "`fallbacks`")
    FALLBACK_STALE = Said(Policy.FALLBACK, "stale", "An expired answer of the cache stood in.", "`fallbacks`")
    FALLBACK_TEMPLATE = Said(Policy.FALLBACK, "template", "The fixed text stood in.", "`fallbacks`, `template`")
    FALLBACK_SKIPPED = Said(Policy.FALLBACK, "skipped", "An optional stage failed.", "")
    FALLBACK_LOCAL = Said(
        Policy.FALLBACK, "local", "Redis was away: one cache replica's own memory was asked.", "the cache's `redis_url`"
    )
    FALLBACK_BYPASSED = Said(
        Policy.FALLBACK,
        "bypassed",
        "The cache does not keep questions like this one; its detail says why.",
        "",
    )
    BREAKER_REFUSED = Said(Policy.BREAKER, "refused", "No replica of the model is called for now.", "`breaker.slow_ms`")
    BREAKER_SKIPPED = Said(Policy.BREAKER, "skipped", "An optional stage's backend is not called for now.", "")
    LIMIT_WAITED = Said(
        Policy.LIMIT, "waited", "It waited for a place at the model, or an item of a batch for its turn.", "`limit`"
    )
    LIMIT_SAGGING = Said(Policy.LIMIT, "sagging", "The model's tokens come much more slowly than usual.", "`limit`")
    SHED_REFUSED = Said(
        Policy.SHED,
        "refused",
        "It was refused so that others hold: by load, pressure, a full queue.",
        "`limit`, `tenants`",
    )
    QUOTA_REFUSED = Said(Policy.QUOTA, "refused", "Its tenant is over a quota.", "`tenants`")
    QUOTA_LOCAL = Said(
        Policy.QUOTA,
        "local",
        "Redis did not decide on its tenant's quota in time; this gateway did.",
        "`redis_url`",
    )
    SINGLE_FLIGHT_JOINED = Said(
        Policy.SINGLE_FLIGHT, "joined", "The same was being generated; this request reads along.", "`single_flight`"
    )
    BUDGET_SKIPPED = Said(Policy.BUDGET, "skipped", "An optional stage overran or had no time.", "`stage_caps_ms`")
    BUDGET_CUT = Said(Policy.BUDGET, "cut", "The text was cut at the budget.", "`max_budget_ms`")
    PREFIX_MATCHED = Said(
        Policy.PREFIX,
        "matched",
        "The replica was sent this prompt's beginning before, by this tenant or its `prefix_group`, and may have it in "
        "its key-value cache.",
        "`balance`, `tenants`",
    )
    PROMPT_DIETED = Said(
        Policy.PROMPT, "dieted", "What costs tokens and says nothing was left out of the prompt.", "`prompt.diet`"
    )
    PROMPT_SHORTENED = Said(
        Policy.PROMPT,
        "shortened",
        "The oldest turns were left out, or a summary stands for them: the model's context does not hold them.",
        "`prompt.whole`, `prompt.summary_model`",
    )
    CASCADE_PASSED = Said(Policy.CASCADE, "passed", "The fast model's answer will do.", "`cascade`")
    CASCADE_ESCALATED = Said(
        Policy.CASCADE, "escalated", "It will not, and the reason says why: the better model is asked.", "`cascade`"
    )
    CASCADE_KEPT = Said(
        Policy.CASCADE, "kept", "It was streamed at once, and stays: the better model's did not come.", "`cascade`"
    )
    FORM_VALID = Said(Policy.FORM, "valid", "The answer matches `response_format`.", "`response_format.check`")
    FORM_HELD = Said(
        Policy.FORM, "held", "Its engine has held it to a grammar, which nobody checks afterwards.", "`response_format`"
    )
    FORM_REPAIRED = Said(
        Policy.FORM,
        "repaired",
        "It did not, and the reason says where; its model was asked again, and that answer does.",
        "`response_format.check`",
    )
    FORM_FAILED = Said(
        Policy.FORM,
        "failed",
        "It does not, and the reason says where and why it was not repaired.",
        "`response_format.check`",
    )
    FORM_UNCHECKED = Said(Policy.FORM, "unchecked", "Nobody could say whether it does.", "`response_format.check`")
    TOOL_REUSED = Said(Policy.TOOL, "reused", "A result that it had told before still counts.", "`tools`")
    TOOL_LATE = Said(
        Policy.TOOL, "late", "It had not answered in its time; the prompt says so, and a patch may come.", "`tools`"
    )
    TOOL_FAILED = Said(Policy.TOOL, "failed", "It could not do what it was called for; the model is told.", "`tools`")
    TOOL_UNAVAILABLE = Said(
        Policy.TOOL,
        "unavailable",
        "It could not be reached, or is not called for now: a breaker, a full line.",
        "`tools`",
    )
    TOOL_RETRIED = Said(Policy.TOOL, "retried", "A call that may be repeated was UNAVAILABLE, and was made again.", "")
    TOOL_REFUSED = Said(
        Policy.TOOL, "refused", "The model called what there is not, or with what are no arguments.", "`tools`"
    )
    TOOL_REPEATED = Said(
        Policy.TOOL, "repeated", "The model made a call that it had made before: it must answer now.", "`tools`"
    )
    TOOL_CAPPED = Said(
        Policy.TOOL,
        "capped",
        "The model wanted more calls than an answer may have: it must answer now.",
        "`tools.max_calls`, `tools.max_steps`",
    )
    TOOL_HURRIED = Said(
        Policy.TOOL, "hurried", "There was no time for another call: the model must answer now.", "`stage_caps_ms`"
    )
    TOOL_SKIPPED = Said(
        Policy.TOOL, "skipped", "The model that was asked what to call could not say; it answers without.", "`tools`"
    )
    TOOL_CUT = Said(Policy.TOOL, "cut", "A result was longer than a prompt may hold of it.", "`tools.max_result_bytes`")
    TOOL_DROPPED = Said(
        Policy.TOOL, "dropped", "Calls beside one of the caller's own tools, which ended the answer.", "`tools`"
    )
    GUARD_NOTED = Said(
        Policy.GUARD,
        "noted",
        "The request, or what a tool said, looks like a prompt injection, and is read all the same.",
        "`guard.injection`",
    )
    GUARD_REFUSED = Said(
        Policy.GUARD,
        "refused",
        "The request holds what its tenant's guard refuses, or what a tool said does, which is then withheld; the "
        "reason names the rule.",
        "`guard.injection`, `guard.secrets`, `guard.personal`",
    )
    GUARD_HID = Said(
        Policy.GUARD,
        "hid",
        "Names stand in the prompt, or in what a tool said, for secrets or personal data.",
        "`guard.secrets`, `guard.personal`",
    )
    GUARD_BYPASSED = Said(
        Policy.GUARD,
        "bypassed",
        "Question or answer holds secrets or personal data: the cache is not asked, or does not keep it.",
        "`guard.secrets`, `guard.personal`",
    )
    GUARD_MASKED = Said(
        Policy.GUARD,
        "masked",
        "Names stand in the answer for what was found in it.",
        "`guard.answer_secrets`, `guard.answer_personal`, `guard.answer_denied`",
    )
    GUARD_ENDED = Said(
        Policy.GUARD,
        "ended",
        "The answer ends before what was found in it.",
        "`guard.answer_secrets`, `guard.answer_personal`, `guard.answer_denied`",
    )
    GUARD_LATE = Said(
        Policy.GUARD, "late", "The guard was not done in time; the reason says what came of it.", "`guard.late`"
    )
    CACHE_BYPASSED = Said(
        Policy.CACHE, "bypassed", "It is of a kind that is not looked up; the reason names the words.", "`hits`"
    )
    CACHE_STALE = Said(
        Policy.CACHE, "stale", "The answer's time is over; it was given, and a new one is made.", "`hits.revalidate_ms`"
    )
    CACHE_EXACT = Said(Policy.CACHE, "exact", "The same, but for an answer to this very question.", "`hits`")
    DRILL_DROPPED = Said(
        Policy.DRILL, "dropped", "A drill refuses a share of the calls on purpose.", "the topology's `drill`"
    )
    DRILL_DELAYED = Said(Policy.DRILL, "delayed", "It holds one back.", "the topology's `drill`")
    DRILL_ABORTED = Said(Policy.DRILL, "aborted", "It ends one.", "the topology's `drill`")
    START_WAITED = Said(Policy.START, "waited", "The call waited for the model to start.", "`ready.unreached_ms`")
    TARGET_MISSED_P50 = Said(Policy.TARGET, "missed_p50", "A stage took longer than its target at p50.", "`targets`")
    TARGET_MISSED_P95 = Said(Policy.TARGET, "missed_p95", "The same at p95.", "`targets`")
    TARGET_MISSED_P99 = Said(Policy.TARGET, "missed_p99", "The same at p99.", "`targets`")
