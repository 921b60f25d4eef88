"""Events and parts of an answer, as plain values. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from hedgerow._image_labels import Label
from hedgerow._reports import Decision, StageReport
from hedgerow._tools import Citations, ToolCall, ToolCallDelta

if TYPE_CHECKING:  # a plain `Answer` is one without a value
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=None)
else:
    T = TypeVar("T")

FinishReason: TypeAlias = Literal[
    "unspecified", "stop", "length", "budget", "cancelled", "interrupted", "tool_calls", "content_filter"
]
_NOTHING: Any = None
_FIXED_TEXT = "llm:template"  # the label of an answer with the gateway's fixed text
CacheVerdict: TypeAlias = Literal["unspecified", "miss", "exact", "semantic", "bypass", "unavailable"]


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage before it ran."""

    name: str
    budget_ms: float  # the most it may take
    required: bool  # whether the answer needs it
    after: tuple[str, ...]  # the stages it waits for


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request is admitted, and this is the plan. Always the first event."""

    trace_id: str  # W3C, 32 hexadecimal digits
    budget_ms: float  # the time for the whole answer
    plan: tuple[PlannedStage, ...]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, and the natural logarithm of its probability."""

    token: str
    bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()  # the most likely tokens at this position, best first


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text. Tokens that arrived together travel together."""

    text: str
    tokens: int  # 0: not known, as in an answer from the cache
    logprobs: tuple[TokenLogprob, ...] = ()  # of the tokens, with `top_logprobs`


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning before its answer; no part of the answer."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Patch:
    """A late result of a stage; or, if it `replaces`, the new text in place of all text so far."""

    stage: str
    text: str
    replaces: bool = False  # `text` replaces all text so far; later deltas are appended


@dataclass(frozen=True, slots=True)
class Transcript:
    """The transcript of a recording or a speaker. The first `confirmed_words` words never change; the others may."""

    text: str  # all of it so far
    confirmed_words: int
    final: bool  # it is complete, and all of its words are confirmed


@dataclass(frozen=True, slots=True)
class Sights:
    """The labels of the pictures."""

    pictures: tuple[tuple[Label, ...], ...]  # one for each picture, in order; its labels best first


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of an answer. All zero for an answer from the cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int
    drafted_tokens: int  # proposed by speculative decoding
    accepted_tokens: int  # of them, kept by the model
    reasoning_tokens: int = 0  # of those generated
    cache_write_tokens: int = 0  # of the prompt, written to a provider's cache


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The cache's verdict."""

    verdict: CacheVerdict
    similarity: float | None  # of the nearest stored question, 0 to 1; None: none was compared
    key: str  # of the entry that answered
    reason: str = ""  # why there was no lookup, or only an exact one: `sampled`, `time_bound`, …
    category: str = ""  # of the question, if any
    stale: bool = False  # expired: sent at once, while a new one is generated


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a request or its answer."""

    what: str  # `budget`, `max_tokens`, `cache`, `prompt_compressed`, `conversation_cut`, …
    before: str  # the value before, or the requested one: `812 tokens`; empty: not known
    after: str  # the new value: `640 tokens`
    by: str  # requested by: `request`, `tenant` (its settings) or `mesh` (the mesh file, or settings)


@dataclass(frozen=True, slots=True)
class PromptReport:
    """Changes of the prompt before a model read it."""

    tokens_before: int  # before all changes, template included
    tokens_after: int  # as the model read it
    estimated: bool  # whether tokens are estimated
    dropped_turns: int  # the oldest, left out
    summary: str  # their replacement: `none`, `kept`, `ordered`; empty: none was left out
    diet: tuple[str, ...]  # rules of compression that applied: `spaces`, `repeats`, `phrases`, `examples`
    system: str  # the gateway's own system prompt, for example `support@3 (simple)`


@dataclass(frozen=True, slots=True)
class Timings:
    """Times measured by the client, from the sending of the request. None: nothing to measure."""

    first_token_ms: float | None
    per_output_token_ms: float | None  # mean time between tokens, after the first event with tokens
    first_sentence_ms: float | None
    total_ms: float


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer and its report. `ttft_ms` and `total_ms` are the gateway's, `timings` the client's own."""

    text: str  # the whole text, after replacements
    finish_reason: FinishReason  # why the text ends
    model: str  # the model that answered; empty for the gateway's fixed text
    usage: Usage  # tokens
    cache: CacheReport  # the cache's `verdict`, `similarity`, `key`, `reason`
    degraded: tuple[str, ...]  # stable labels; empty: the answer is whole
    stages: tuple[StageReport, ...]  # each with its budget, time and outcome
    ttft_ms: float | None  # the gateway's time to the first text; None without text
    total_ms: float  # the gateway's time for the answer
    trace_id: str  # W3C, 32 hexadecimal digits
    budget_ms: float  # the time limit of the answer
    timings: Timings  # measured by this client
    decisions: tuple[Decision, ...] = ()  # of policies, in order
    cost_usd: float = 0.0  # of all calls of the gateway that ended the answer, lost races included
    transcript: str = ""  # of the recording
    sights: tuple[tuple[Label, ...], ...] = ()  # labels of each picture, if in time
    tool_calls: tuple[ToolCall, ...] = ()  # of your own tools, for you to run
    reasoning: str = ""  # the model's thoughts before the answer
    logprobs: tuple[TokenLogprob, ...] = ()  # of the text's tokens, with `top_logprobs`
    prompt: PromptReport | None = None  # None: the prompt was not changed
    usable_ms: float | None = None  # to the first whole sentence, or to the end
    citations: tuple[Citations, ...] = ()  # sources of the mesh's tools
    patches: tuple[Patch, ...] = ()  # late results
    changes: tuple[Change, ...] = ()  # of the request and the answer
    cut: Change | None = None  # the mesh's limit that ended it: `budget` or `max_tokens`
    parsed: T = _NOTHING  # the value of `ask(…, into=…)`; else None

    @property
    def is_fallback(self) -> bool:
        """Whether the text is the gateway's fixed text, because no model answered in time."""
        return _FIXED_TEXT in self.degraded

    @property
    def complete(self) -> bool:
        """Whether the model ended the answer: `finish_reason` is `stop` or `tool_calls`, and it is no fallback."""
        return self.finish_reason in ("stop", "tool_calls") and not self.is_fallback


@dataclass(frozen=True, slots=True)
class Final:
    """The answer is complete, or as complete as it gets. Always the last event."""

    answer: Answer


Event: TypeAlias = (
    Accepted
    | StageReport
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | Patch
    | Transcript
    | Sights
    | Citations
    | Final
)
