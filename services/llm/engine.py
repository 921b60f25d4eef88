"""The seam between the service and whatever generates: plain values in, chunks of text out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

from services.runtime.deadline import Deadline

Progress = Callable[[str], None]  # called with one line at each step
# APIs without a conversation: one JSON object is posted, and one comes back.
METHODS = frozenset({"embeddings", "rerank", "moderations"})


@dataclass(frozen=True, slots=True)
class Part:
    """A piece: `text`, media in `data`, or a document in its caller's words, the JSON `given` at a `place`."""

    kind: Literal["text", "image", "audio", "document"]
    text: str = ""
    data: bytes = b""
    place: str = ""
    given: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model called. `arguments` are JSON, as far as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation. `parts` replace `content`; they are used only if a part is not text."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()  # of an assistant
    tool_call_id: str = ""  # of a tool: the call that this is the result of


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. `parameters` is a JSON Schema, as text; empty: it takes none."""

    name: str
    description: str = ""
    parameters: str = ""
    strict: bool = False  # whether the arguments must match


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called, or which one."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""  # of `named`

    @property
    def forces(self) -> bool:
        """Whether the answer is a call, whatever the model would rather do."""
        return self.mode in ("required", "named")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; None takes the model's own default."""

    temperature: float | None = None  # 0 to 2; 0 is greedy
    top_p: float | None = None  # above 0 to 1
    max_tokens: int | None = None  # at least 1
    stop: tuple[str, ...] = ()  # end the answer and are not part of it
    seed: int | None = None
    frequency_penalty: float | None = None  # -2 to 2
    presence_penalty: float | None = None  # -2 to 2
    logit_bias: tuple[tuple[int, float], ...] = ()  # a token's number, and -100 to 100
    top_logprobs: int | None = None  # 0 to 20; None: no log-probabilities
    top_k: int | None = None  # 1 or more; 0 and -1 draw from all tokens
    min_p: float | None = None  # 0 to 1
    repetition_penalty: float | None = None  # above 0 to 2; 1 turns it off
    min_tokens: int | None = None  # 0 to max_tokens
    ignore_eos: bool = False  # go on behind the model's own end
    stop_token_ids: tuple[int, ...] = ()  # end the answer, whatever their text


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on the whole answer. `value` is a JSON Schema, as text, a regular expression, the texts of a choice
    as a JSON array, or a grammar."""

    kind: Literal["json_schema", "regex", "json_object", "choice", "grammar"]
    value: str = ""
    field: str = "response_format"  # of the request


@dataclass(frozen=True, slots=True)
class Original:
    """The request in its caller's words. `api`: the API they are of, as `Model.apis` has it. `body` is a JSON object;
    what of a conversation it lacks, the request has. `untranslated`: what the request does not say, by place, as JSON;
    the messages of the request have parts for the `documents` at these places."""

    api: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    untranslated: Mapping[str, str] = field(default_factory=dict)
    documents: frozenset[str] = frozenset()

    @property
    def method(self) -> str:
        """The API, where it is one without a conversation; else empty."""
        return self.api if self.api in METHODS else ""


@dataclass(frozen=True, slots=True)
class Request:
    """A conversation to continue."""

    messages: tuple[Message, ...]
    sampling: Sampling = field(default_factory=Sampling)
    constraint: Constraint | None = None
    prefix: str = ""  # the answer's beginning: go on from there, and give only what is new
    cache_salt: str = ""  # only prompts with the same may share what was read
    tenant: str = ""  # whose it is, where the gateway says so: constraints share their time by it
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True  # whether it may call several at once
    original: Original | None = None
    most_tokens: int = 0  # of the answer, whatever `original` says; 0: no such limit
    counted: bool = True  # whether a provider is asked to report the usage
    omits: bool = False  # a field that only tunes the answer may be left out where the model's API has none for it

    @property
    def method(self) -> str:
        """`embeddings`, `rerank` or `moderations`; empty: a conversation is to be continued."""
        return self.original.method if self.original else ""


class FinishReason(Enum):
    """Why a generation ended, as far as an engine knows."""

    STOP = "stop"  # the model ended it, or a stop string did
    LENGTH = "length"  # max_tokens or the context was reached
    INTERRUPTED = "interrupted"  # the engine failed after it had begun; the text is incomplete
    TOOL_CALLS = "tool_calls"  # the model called tools
    CONTENT_FILTER = "content_filter"  # the text, or the rest of it, was withheld


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of an answer, in tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0  # whose key-value cache was reused
    drafted_tokens: int = 0  # proposed by speculation
    accepted_tokens: int = 0  # of those, kept by the model
    reasoning_tokens: int = 0  # of those generated
    cache_write_tokens: int = 0  # of the prompt, written to a provider's cache


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a generation."""

    reason: FinishReason
    usage: Usage
    queue_ms: float | None = None  # waited for the engine before it ran; None: the engine does not say


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call. The first of each has `id` and `name`."""

    index: int  # which of the answer's calls, from 0
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the natural logarithm of its probability, with the likeliest ones in its place, best first."""

    token: str
    bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """More of the answer, the end, or both. `tokens` counts those that went into it."""

    text: str
    tokens: int
    finish: Finish | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()
    reasoning: str = ""  # what the model thinks, and no part of the answer
    logprobs: tuple[TokenLogprob, ...] = ()  # of `text`
    relayed: tuple[str, ...] = ()  # the events that it was read from, for a request in the provider's own words


class Feature(Enum):
    """A feature that not every engine has; the value is its name in settings."""

    TOOLS = "tools"
    LOGPROBS = "logprobs"
    LOGIT_BIAS = "logit_bias"
    IMAGES = "images"
    AUDIO = "audio"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    TOP_K = "top_k"
    VLLM_SAMPLING = "vllm_sampling"  # the other fields of sampling that only vLLM and its kin have
    PREFIX = "prefix"  # it continues an answer's beginning, as vLLM's servers do with `continue_final_message`


@dataclass(frozen=True, slots=True)
class Model:
    """The model that an engine serves."""

    name: str
    engine: str  # by the name in the settings
    context_tokens: int  # prompt and answer together; 0: the engine does not say
    max_tokens: int  # one answer; 0: the engine does not say
    speculation: str  # `off`, `ngram`, `draft_model`, …; empty: the engine does not say
    continues: bool  # whether it takes a request with a `prefix`
    salts: bool = False  # whether it keeps prompts with different `cache_salt` apart
    features: frozenset[Feature] = frozenset()  # a request that needs another never gets there
    default_sampling: Sampling = Sampling()  # what a request gets that does not say, as far as the engine knows
    usual_max_tokens: int = 0  # of an answer whose request has no limit, where its API wants a number; 0: it wants none
    takes: frozenset[str] = frozenset()  # fields that it reads of a request's `untranslated`, also as `place=JSON`
    translates: Callable[[Original, str, str], bool] | None = None  # the same, of a place and its JSON
    lacks: frozenset[str] = frozenset()  # fields of sampling that its API has not, and no feature is for
    apis: frozenset[str] = frozenset()  # whose words its provider reads, by their names in the settings

    def reads(self, request: Request) -> bool:
        """Whether its provider is asked with the caller's own words."""
        return request.original is not None and request.original.api in self.apis


@dataclass(frozen=True, slots=True)
class Outage:
    """Requests to the provider at `url`, which has no credentials, fail."""

    url: str
    reason: str  # in words
    away: bool = False  # there is no connection, and the engine tries to make one


@dataclass(frozen=True, slots=True)
class Load:
    """The load of an engine now, in requests."""

    running: int
    waiting: int
    outage: Outage | None = None  # set while requests fail


class Engine(Protocol):
    """Generates text with one model."""

    def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        """Stream an answer; the last chunk, and only that, has `finish`. Closing the generator stops the engine.

        All counts are of this generation: a prefix is part of the prompt. Raises InvalidInput, NotSupported, Exhausted
        or Unavailable, always before the first chunk: once there is text, a failure is a finish with reason
        INTERRUPTED. Thoughts and calls of tools are as good as text. Raises TooLate at the deadline, also mid-answer.
        """
        ...

    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        """The tokens of a conversation and of what may be called in it, template included."""
        ...

    def describe(self) -> Model:
        """The model that it serves. Only `context_tokens` may change: a provider may say it later."""
        ...

    def load(self) -> Load:
        """The engine's present load."""
        ...

    async def warm_up(self, progress: Progress) -> None:
        """Do now what the first requests would otherwise wait for."""
        ...

    async def wait_failed(self) -> str:
        """Return why, once it can never serve again; until then, wait."""
        ...

    async def close(self) -> None:
        """Stop, leaving no process and no connection behind."""
        ...
