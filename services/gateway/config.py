"""Settings of the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from services.gateway.guard import denied
from services.gateway.hits.settings import NO_HITS_SAID, HitSettings
from services.gateway.permissions import Permission
from services.gateway.profiles import DEFAULT, OfProfile, Profile
from services.runtime import limits
from services.runtime.process.config import ServiceSettings, is_loopback
from services.runtime.rpc import first_message
from services.runtime.security.secrets import HttpUrl, Url, shown
from services.runtime.shared_state import RedisUrl

KEY_WANTED = "a key of a tenant (in `api_keys`, `tenants` or `tenants_file`)"
Address = Annotated[str, Field(min_length=3)]
# One address may be given as a plain string; the same address twice is two replicas to hedge between.
Addresses = Annotated[
    tuple[Address, ...], Field(min_length=1), BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)
]


TEMPLATE = "I could not finish this answer in time. Please ask again."


class StageBudget(BaseModel):
    """How much of the budget a stage may take: a share of the whole, but never more than the cap."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: float = Field(gt=0, le=1, description="Share of the whole budget.")
    cap_ms: float = Field(gt=0, le=600_000, description="The most it gets, in milliseconds.")


class StageBudgets(BaseModel):
    """The budgets of the stages. The model gets at least what the stages before it leave, and all that they save."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache: StageBudget = StageBudget(share=0.2, cap_ms=200)
    router: StageBudget = StageBudget(share=0.05, cap_ms=10)
    vision: StageBudget = StageBudget(share=0.25, cap_ms=1_000)
    audio: StageBudget = StageBudget(share=0.5, cap_ms=20_000)
    tools: StageBudget = StageBudget(share=0.3, cap_ms=5_000)
    agent: StageBudget = StageBudget(share=0.5, cap_ms=60_000)
    guard: StageBudget = StageBudget(share=0.1, cap_ms=50)
    llm: StageBudget = StageBudget(share=1, cap_ms=600_000)


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HedgeSettings(_Group):
    """A second call where the first text is late; the first text wins and the other call is cancelled."""

    mode: Literal["adaptive", "fixed", "tied", "off"] = Field(
        "adaptive",
        description="When: `adaptive` after a percentile of recent first-token times, `fixed` after `delay_ms`, "
        "`tied` at once.",
    )
    percentile: float = Field(95, gt=0, lt=100, description="For `adaptive`: after which percentile.")
    delay_ms: float = Field(150, ge=0, le=60_000, description="For `fixed`: how long to wait for a first text.")
    min_samples: int = Field(
        100,
        ge=1,
        description="For `adaptive`: where there are fewer in the window, those of the last ten minutes count, or what "
        "is expected.",
    )
    window_s: float = Field(60, gt=0, le=3_600, description="How far back they reach, in seconds.")
    max_share: float = Field(
        0.05, ge=0, le=1, description="The most second calls, as a share of all requests; in a short run `burst` more."
    )
    burst: float = Field(10, ge=1, description="The most second calls at once, saved up in quiet times.")
    across_models: bool = Field(False, description="Whether the next best model may take the second call.")


class RetrySettings(_Group):
    """Another call where the first was UNAVAILABLE before its first text."""

    max_share: float = Field(
        0.2, ge=0, le=1, description="The most retries, as a share of all requests; in a short run `burst` more."
    )
    burst: float = Field(10, ge=1, description="The most retries at once, saved up in quiet times.")
    base_ms: float = Field(5, ge=0, le=10_000, description="Backoff before the retry: a random time up to this.")


class ExpectedSettings(_Group):
    """How long each backend usually needs, until it has answered often enough to tell: a call that had less and brought
    nothing says nothing of its backend. A router's table knows better for models."""

    cache_ms: float = Field(50, gt=0, le=600_000, description="For a lookup.")
    vision_ms: float = Field(250, gt=0, le=600_000, description="For the pictures of a request.")
    audio_ms: float = Field(5_000, gt=0, le=600_000, description="For a recording.")
    tool_ms: float = Field(500, gt=0, le=600_000, description="For a call of a tool.")
    first_text_ms: float = Field(
        300, gt=0, le=600_000, description="For a model's first text; also when to hedge while little is known."
    )


class BreakerSettings(_Group):
    """When a backend gets no more calls, and when it is tried again."""

    window_s: float = Field(10, gt=0, le=600, description="How far back calls count, in seconds.")
    min_calls: int = Field(5, ge=1, description="Fewer calls than this say nothing yet.")
    in_a_row: int = Field(5, ge=1, description="Failures in a row that open it at once.")
    failure_rate: float = Field(0.5, gt=0, le=1, description="Share of failed calls that opens it.")
    slow_rate: float = Field(0.9, gt=0, le=1, description="Share of slow calls that opens it.")
    slow_ms: float = Field(10_000, gt=0, description="A first text that takes longer is slow.")
    open_ms: float = Field(1_000, gt=0, le=600_000, description="How long it stays open before one call may probe.")


class LimitSettings(_Group):
    """How many calls a model gets at once, and who waits for how long."""

    algorithm: Literal["gradient2", "aimd", "fixed"] = Field(
        "gradient2", description="How the limit follows first-token times and queue waits; `fixed` stays at `initial`."
    )
    initial: int = Field(20, ge=1, le=10_000, description="Calls at once, at start.")
    min: int = Field(10, ge=1, le=10_000, description="Never fewer.")
    max: int = Field(200, ge=1, le=10_000, description="Never more.")
    queue: int = Field(100, ge=0, le=10_000, description="Requests that may wait for a place.")
    queue_ms: float = Field(200, ge=0, le=60_000, description="The longest wait; then the request is shed.")
    batch_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="The most of a model's places that items of batches take, while nobody waits and the load is below "
        "`shed.load`.",
    )
    batch_share_beside: float = Field(
        0.1,
        gt=0,
        le=1,
        description="The same where somebody who waits for an answer asked in the last 5 s; one place at least.",
    )
    order: Literal["lifo", "deadline"] = Field(
        "deadline",
        description="Who of one class and tenant goes first. `lifo`: the newest, which has most of its time left; the "
        "oldest then learn late that they are refused.",
    )


class ShedSettings(_Group):
    """Which requests are refused first when it gets full. Score: premium +100, real-time +75, each repeat -50."""

    load: float = Field(
        0.85, gt=0, le=1, description="From this load on, low scores are shed. 1 is all places and the queue."
    )
    score: int = Field(50, description="Scores below this are low.", ge=-10_000, le=10_000)
    lag_ms: float = Field(50, gt=0, le=10_000, description="An event loop that runs this late is a load of 1.")
    cpu: float = Field(0.95, gt=0, le=64, description="Cores the process may use before its lag counts.")
    retry_after_ms: float = Field(
        1_000, ge=1, le=600_000, description="What refused callers are told to wait, at least."
    )


class PromptSettings(_Group):
    """What becomes of prompts before a model reads them. A request may ask for less."""

    diet: Literal["off", "system", "all"] = Field(
        "system",
        description="Which messages are put on a diet: those that instruct, or the user's too, which may hold data.",
    )
    whole: bool = Field(
        False,
        description="Leave a conversation that is longer than its model's context as it is: the model refuses it. "
        "Otherwise its first turns are left out, or summed up. A request's `truncation` is stronger.",
    )
    diet_from_bytes: int = Field(500, ge=1, description="Prompts from this size on.")
    diet_to_bytes: int = Field(
        16_384, ge=0, le=65_536, description="The most of a prompt's messages; those after it stay as they are."
    )
    max_examples: int = Field(4, ge=0, description="Examples a message keeps, one of each answer first. 0: all.")
    reserved_tokens: int = Field(
        256,
        ge=1,
        description="Kept of a context for an answer without `max_tokens`; half of it at most.",
    )
    summary_model: str = Field(
        "", description="Who sums up the turns that do not fit a context, beside the answer. Empty: they are left out."
    )
    summary_tokens: int = Field(128, ge=1, le=4_096, description="The most tokens of such a summary.")
    summary_ms: int = Field(10_000, ge=1, le=600_000, description="The longest it may take.")


class CascadeSettings(_Group):
    """When a fast model's answer will do, where a request asks for a cascade."""

    min_mean_logprob: float = Field(
        -0.3, ge=-100, le=0, description="The least mean log-probability of its tokens, where a request names none."
    )


class JudgeSettings(_Group):
    """Who judges the stored answers that a cache with a `verify_share` draws."""

    model: str = Field(
        "",
        description="The model. Empty: the one that a question of the quality tier gets; where there is none, nobody.",
    )
    at_once: int = Field(2, ge=0, description="How many are judged at once; what comes meanwhile is dropped. 0: none.")
    ms: int = Field(10_000, ge=1, le=600_000, description="The longest it may take, the wait for a place to spare too.")


class GuardSettings(_Group):
    """What is looked for in requests and answers. A request may ask for more, and never for less."""

    injection: Literal["off", "note", "refuse"] = Field(
        "off", description="Prompt injections in what users and tools say: `note` tells of them in the account alone."
    )
    injection_score: float = Field(
        0.85, gt=0, lt=1, description="From which probability on the classifier's word counts, beside its patterns."
    )
    secrets: Literal["off", "mask", "refuse"] = Field(
        "off",
        description="Keys, tokens and passwords in requests: `mask` them in what models read. Such a request is "
        "neither looked up in the cache nor stored, and shares no generation.",
    )
    personal: Literal["off", "mask", "refuse"] = Field(
        "off",
        description="The same for personal data: addresses of mail, telephone numbers, cards, bank accounts, national "
        "identity numbers.",
    )
    also: tuple[Literal["system", "prefix", "tools"], ...] = Field(
        (),
        description="Which other texts the guard looks through, as JSON: `system` messages, the `prefix` that an "
        "answer continues, the descriptions and parameters of `tools`. Without it they count as the "
        "application's own words.",
    )
    answer_secrets: Literal["off", "mask", "end"] = Field(
        "off", description="Keys, tokens and passwords in answers: `mask` them, or `end` the answer before them."
    )
    answer_personal: Literal["off", "mask", "end"] = Field("off", description="The same for personal data.")
    denied_phrases: tuple[str, ...] = Field(
        (), max_length=denied.MOST, description="What answers may not say, however it is capitalized: whole words."
    )
    denied_patterns: tuple[str, ...] = Field(
        (),
        max_length=denied.MOST,
        description=f"The same as regular expressions with matches of at most {denied.WIDEST} characters, that look at "
        "nothing around them.",
    )
    answer_denied: Literal["mask", "end"] = Field("mask", description="What becomes of what is denied.")
    pattern_ms: float = Field(5, gt=0, le=1_000, description="The longest that one denied pattern may look at a time.")
    late: Literal["open", "closed"] = Field(
        "closed",
        description="What a guard does that is not done within its slice, `stages.guard`, or within `pattern_ms`: "
        "`open` lets the request or answer pass, which is then marked; `closed` refuses the one and ends the other.",
    )

    @field_validator("denied_phrases")
    @classmethod
    def _phrases(cls, phrases: tuple[str, ...]) -> tuple[str, ...]:
        denied.check_phrases(phrases)
        return phrases

    @field_validator("denied_patterns")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            denied.check_pattern(pattern)
        return patterns

    @property
    def off(self) -> bool:
        """Whether there is nothing to look for."""
        asks = self.injection == self.secrets == self.personal == "off"
        screens = self.answer_secrets == self.answer_personal == "off"
        return asks and screens and not (self.denied_phrases or self.denied_patterns)


UNGUARDED = GuardSettings()


class KeptSettings(_Group):
    """Answers with an `idempotency_key`, which outlast the connection of their client."""

    ms: int = Field(
        30_000, ge=1, le=3_600_000, description="How long one goes on without a client, and is kept when it is whole."
    )
    bytes: int = Field(
        67_108_864,
        ge=0,
        description="The most bytes they take, in each worker. When it is full, the tenant that has the most gives up "
        "its oldest one: whole ones without a client first, then those under way without a client, which end, then "
        "those that a client reads, which go on and are not kept.",
    )


class SystemPromptSettings(_Group):
    """A system prompt that requests name, in variants by how hard a question looks."""

    version: str = Field("1", min_length=1, max_length=64, description="Told in the account of every answer.")
    default: str = Field(min_length=1, description="For questions that nobody has judged, and in place of the others.")
    simple: str = Field("", description="For simple questions.")
    complex: str = Field("", description="For complex ones.")
    max_tokens: int = Field(1_000, ge=1, description="The most each variant may have, at 4 bytes a token.")

    @model_validator(mode="after")
    def _within_its_length(self) -> Self:
        for name in ("default", "simple", "complex"):
            tokens = -(-len(getattr(self, name).encode()) // 4)
            if tokens > self.max_tokens:
                raise ValueError(f"{name}: at most {self.max_tokens} tokens, got about {tokens}")
        return self


class WarmSettings(_Group):
    """System prompts that models have read before anybody asks with them, so that an engine's prefix cache has them.

    Off unless it names some: to read a prompt is work for an engine, and costs money at a provider.
    """

    prompts: tuple[str, ...] = Field(
        (),
        description="Of `system_prompts`, by name; `*`: all. Each is read for each tenant with `warm` by itself, or "
        "once for its `prefix_group`: prefix caches share nothing between others. Empty: none.",
    )
    tiers: tuple[Literal["fast", "balanced", "quality"], ...] = Field(
        ("fast", "balanced", "quality"),
        min_length=1,
        description="Whose models read them, on each replica; without a router, all models.",
    )
    every_ms: int = Field(
        60_000,
        ge=0,
        le=86_400_000,
        description="How often, with one token of output: engines forget what is not asked for. 0: once for each "
        "replica, and again when it comes back.",
    )


class ToolSourceSettings(_Group):
    """Where tools come from: exactly one of `address`, `url` and `command`."""

    address: str = Field("", description="A service of `hedgerow.tool.v1`, also as xds:///name or a list.")
    identity: str = Field("tool", min_length=1, description="With a `tls_dir`: who it is by its certificate.")
    url: HttpUrl = Field(Url(""), description="An MCP server, by streamable HTTP.")
    authorization: SecretStr = Field(SecretStr(""), description="The `authorization` header that it is sent.")
    command: tuple[str, ...] = Field((), description="An MCP server, started as a child of each worker.")
    environment: dict[str, SecretStr] = Field({}, description="Of the command, beside PATH, HOME, LANG and USER.")
    prefix: str = Field("", max_length=32, pattern="^[A-Za-z0-9_-]*$", description="Put before the names of its tools.")
    tools: tuple[str, ...] = Field((), description="The tools that are taken, by their own names. Empty: all.")
    call_ms: float = Field(1_000, ge=1, le=600_000, description="How long an answer waits for one call.")
    concurrency: int = Field(16, ge=1, le=10_000, description="Calls at once, from each worker.")
    queue_ms: float = Field(100, ge=0, le=60_000, description="The longest that a call waits for a place.")
    reusable_ms: int = Field(
        0, ge=0, le=86_400_000, description="Of an MCP server: how long results of tools that only read are reused."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("address", "url", "command") if getattr(self, name)]
        if len(ways) != 1:
            raise ValueError(f"one of address, url and command, got {' and '.join(ways) or 'none'}")
        return self


class ToolSettings(_Group):
    """The tools that the mesh itself calls, and how far that may go."""

    sources: dict[Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")], ToolSourceSettings] = Field(
        {}, description="Where they come from, as JSON by name."
    )
    max_steps: int = Field(2, ge=1, le=32, description="How often a model is asked for calls before it must answer.")
    max_calls: int = Field(2, ge=1, le=128, description="Calls that a model may have made for one answer.")
    max_tools: int = Field(64, ge=1, le=1_000, description="Tools of one source; those after them are left out.")
    max_description_bytes: int = Field(2_048, ge=1, description="Of a tool's description; the rest is cut off.")
    max_arguments_bytes: int = Field(16_384, ge=2, description="Of the arguments of a call.")
    max_result_bytes: int = Field(
        16_384,
        ge=1,
        description="Of a result, as a model reads it: the rest is cut off. All together have half of a known context.",
    )
    max_message_bytes: int = Field(
        1_048_576, ge=1_024, description="Of one message of an MCP server; at a longer one its connection is closed."
    )
    max_messages_per_s: int = Field(
        500, ge=1, description="Of an MCP server; at more its connection is closed, and opened again after a pause."
    )
    list_ms: float = Field(2_000, ge=1, le=60_000, description="The longest that a source may take to list its tools.")
    refresh_ms: float = Field(
        30_000, ge=10, le=60_000, description="How old a list may be; while its source is away the last one counts."
    )
    reused_bytes: int = Field(
        16_777_216, ge=0, description="The most bytes of results that are kept to be reused, in each worker."
    )


class ConstraintSettings(_Group):
    """What a `response_format` may ask for. More than these takes an engine long, and with it all who wait for it."""

    max_bytes: int = Field(
        limits.CONSTRAINT_BYTES, ge=1, description="Of a JSON Schema, and of the texts of a choice together."
    )
    max_depth: int = Field(
        limits.CONSTRAINT_DEPTH, ge=1, le=64, description="Objects and arrays in each other, in a JSON Schema's text."
    )
    max_nodes: int = Field(3_000, ge=1, description="Objects and arrays of a JSON Schema's text, altogether.")
    max_properties: int = Field(500, ge=0, description="Properties and definitions of a JSON Schema, altogether.")
    max_alternatives: int = Field(
        1_000,
        ge=0,
        description="Values and schemas in `enum`, `anyOf`, `oneOf`, `allOf` and other lists, altogether; "
        "and the texts of a choice.",
    )
    max_repetition: int = Field(
        10_000,
        ge=1,
        description="How often something may be repeated, altogether: the counts of items and properties, "
        "`multipleOf`, and the characters of regular expressions with `{n,m}` written out.",
    )
    max_length: int = Field(100_000, ge=0, description="`minLength` and `maxLength`, each.")
    max_patterns: int = Field(100, ge=0, description="Regular expressions in a JSON Schema.")
    max_pattern_bytes: int = Field(2_048, ge=1, description="Of one regular expression.")
    max_grammar_bytes: int = Field(8_192, ge=1, description="Of a grammar.")
    check: bool = Field(True, description="Whether answers are looked at where a request does not say it (`repair`).")
    check_ms: float = Field(
        200, gt=0, le=10_000, description="The processor time that the check of one answer may take, when it is whole."
    )


class HttpSettings(_Group):
    """What a caller by HTTP may take: bytes, time, connections."""

    max_body_bytes: int = Field(
        limits.HTTP_BODY_BYTES, ge=1_024, description="Of a request's body, where it may hold pictures or recordings."
    )
    max_text_body_bytes: int = Field(
        limits.HTTP_TEXT_BODY_BYTES,
        ge=1_024,
        description="Of other bodies: embeddings, reports of wrong answers.",
    )
    max_waiting_bytes: int = Field(
        limits.HTTP_WAITING_BYTES,
        ge=2_048,
        description="Of all bodies and messages by gRPC that are being read and not admitted yet, of all tenants, in "
        "each worker. A tenant may hold as much as is free, so one alone half of it; more is a 503 with `retry-after`, "
        "by gRPC RESOURCE_EXHAUSTED. A message that is being read counts as the largest that may come, "
        "`max_message_bytes`. At least twice that, and twice `max_body_bytes`.",
    )
    max_json_values: int = Field(
        limits.JSON_VALUES,
        ge=1_000,
        description="Of a JSON body, altogether, without the names in its objects: counted before any is made. Of a "
        "message by gRPC ten times `max_json_items`, or five times `max_messages` where that is more.",
    )
    max_json_items: int = Field(
        limits.JSON_ITEMS,
        ge=100,
        description="Elements of one array, or members of one object, of a JSON body, or of one field of a message by "
        "gRPC. Of `messages` and `input` four times `max_messages`, where that is more.",
    )
    max_header_bytes: int = Field(65_536, ge=1_024, description="Of a request's path and headers, without blanks.")
    max_connections: int = Field(
        4_096,
        ge=1,
        description="At once, in each worker. One more gets the place of the one that has been without a request for "
        "longest, of those without a tenant first; it is closed where all have requests.",
    )
    max_connections_of_one: int = Field(
        2_048, ge=1, description="Of one address, in each worker; more are closed at once."
    )
    header_ms: int = Field(
        10_000, ge=1, le=600_000, description="The longest a request's headers may take, from its first byte on."
    )
    body_ms: int = Field(30_000, ge=1, le=600_000, description="The longest its body may take, from its headers on.")
    write_ms: int = Field(
        20_000, ge=1, le=600_000, description="The longest a client may read nothing while there is something to read."
    )
    keep_alive_ms: int = Field(
        75_000, ge=0, le=3_600_000, description="How long a connection without a request is kept open."
    )
    heartbeat_ms: int = Field(
        10_000,
        ge=100,
        le=600_000,
        description="After so long without a byte, a stream has a comment. The first one sends the headers, with 200.",
    )
    silence_ms: int = Field(
        30_000,
        ge=0,
        le=600_000,
        description="The longest silence after an answer's first text, where the request names none; then it ends with "
        "an error. 0: as long as the answer has.",
    )
    cors_origins: tuple[str, ...] = Field(
        (), description='Origins whose pages may call from a browser, as JSON; `["*"]`: all. Empty: none.'
    )
    metrics: bool = Field(
        False,
        description="Serve `/metrics` and `/v1/cache/stats`, which tell of all tenants, to whoever has a key. Without "
        "keys they always are.",
    )

    @model_validator(mode="after")
    def _room_for_a_body(self) -> Self:
        if self.max_waiting_bytes < (least := 2 * self.max_body_bytes):
            raise ValueError(f"max_waiting_bytes: at least twice max_body_bytes, {least}, got {self.max_waiting_bytes}")
        return self


class TenantPromptSettings(_Group):
    """What becomes of a tenant's prompts. A request's own words are stronger."""

    diet: Literal["off", "system", "all"] | None = Field(None, description="Which messages are put on a diet.")
    conversation: Literal["whole", "cut", "summarize"] | None = Field(
        None,
        description="What becomes of a conversation that is longer than its model's context: it stays as it is, loses "
        "its first turns, or has them summed up, where the gateway has a `prompt.summary_model`.",
    )


class TenantSettings(_Group):
    """What a tenant may have. 0: no limit."""

    keys: tuple[Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")], ...] = Field(
        (), description="SHA-256 of each of its API keys, in hexadecimal."
    )
    premium: bool = Field(False, description="Among the last to be shed.")
    weight: float = Field(1, gt=0, le=1_000, description="Its share when tenants compete.")
    requests_per_s: float = Field(0, ge=0, description="Requests a second.")
    requests_burst: float = Field(10, ge=1, description="Requests at once, saved up in quiet times.")
    tokens_per_minute: float = Field(
        0,
        ge=0,
        description="Prompt and completion tokens a minute, also its burst. A second of a recording is 10.",
    )
    concurrency: int = Field(0, ge=0, description="Requests and open conversations at once.")
    max_budget_ms: int = Field(0, ge=0, description="The most budget a request of its gets, in milliseconds.")
    default_budget_ms: int = Field(
        0, ge=0, description="Budget of a request of its that names none, in milliseconds. 0: the gateway's."
    )
    max_tokens: int = Field(
        0, ge=0, description="The most tokens of an answer, also where a request does not say. 0: no limit of its own."
    )
    prompt: TenantPromptSettings = Field(
        TenantPromptSettings(), description="What becomes of its prompts; what it leaves out is `prompt`'s."
    )
    untranslated: Literal["refuse", "omit"] | None = Field(
        None,
        description="What becomes of a field that the model's API does not have. Without it, as the gateway's setting "
        "of that name has it.",
    )
    check_forms: bool | None = Field(
        None,
        description="Whether its answers are held to their `response_format` where a request does not say it. Without "
        "it, as `response_format.check` has it.",
    )
    tools: tuple[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_*?-]+/.+)$")], ...] = Field(
        (),
        description="The tools of the mesh that it may use, as `source/name`, also with `*`. Empty: none; the tenant "
        "`local` of a gateway without keys may use all where nothing is said of it.",
    )
    provider: tuple[Permission, ...] = Field(
        (),
        description="What its requests may have a provider do beyond the answer, as `docs/http.md` lists it: what "
        "costs more (`n`, `server_tools`, `modalities`, `prediction`, `service_tier`, `speed`, `inference_geo`, "
        "`fallbacks`), comes before others' requests (`priority`), is not looked at here (`extra_body`), is kept at "
        "the provider (`store`, `background`, `prompt_cache_retention`), or is read there (`files`). Empty: nothing; "
        "the tenant `local` of a gateway without keys may all where nothing is said of it.",
    )
    prefix_group: str = Field(
        "",
        max_length=256,
        description="Tenants with the same name here reuse what a model has read of each other's prompts, as of a "
        "system prompt that they share; each can then tell by time and by `cached_prompt_tokens` what the others' "
        "prompts begin with. Empty: it shares with nobody.",
    )

    warm: bool = Field(
        False,
        description="Whether models read the prompts of the gateway's `warm` for it before it asks, and whether it may "
        "have the mesh warmed (`hedgerow warm`). The tenant `local` of a gateway without keys: true where nothing is "
        "said of it.",
    )
    guard: GuardSettings = Field(
        UNGUARDED, description="What is looked for in its requests and answers; what it leaves out is `guard`'s."
    )
    hits: HitSettings = Field(
        NO_HITS_SAID,
        description="Which of its questions the cache may answer, and how; what it leaves out is `hits`'s.",
    )


class TargetSettings(_Group):
    """Latency targets of a stage, in milliseconds. 0: none."""

    p50_ms: float = Field(0, ge=0, description="Half of the requests are faster.")
    p95_ms: float = Field(0, ge=0, description="95 of 100 are faster.")
    p99_ms: float = Field(0, ge=0, description="99 of 100 are faster.")


class GatewaySettings(ServiceSettings):
    """Settings of the gateway."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_GATEWAY_")

    profile: Profile = Field(
        DEFAULT,
        description="What the gateway does by itself: defaults of other settings. `latency`: stored answers, prompts "
        "on a diet, conversations cut to the context, answers held to their form, 30 s. `transparent`: none of these, "
        "600 s, and conversations of up to 100,000 messages and 16 MiB; requests and tenants may ask for each.",
    )
    untranslated: Literal["refuse", "omit"] = Field(
        "refuse",
        description="What becomes of a field that the model's API does not have, as `reasoning_effort` of some: an "
        "error that names it, or it is left out where it only tunes the answer (LiteLLM's `drop_params`), and the "
        "report names it. Requests and tenants may say otherwise. What changes the question is always an error.",
    )
    address: str = Field("127.0.0.1:50050", description="Where to serve gRPC, host:port.")
    first_message_ms: int = Field(
        first_message.DEFAULT_MS,
        ge=1,
        le=600_000,
        description="The longest that a call's first message may take to arrive whole, from its headers on: headers "
        "alone hold a place.",
    )
    http_address: str = Field(
        "",
        validate_default=True,
        description="Where to serve HTTP, host:port: the APIs of OpenAI and Anthropic. Empty: nowhere.",
    )
    http: HttpSettings = Field(HttpSettings(), description="What a caller by HTTP may take.")
    workers: int = Field(
        1,
        ge=1,
        le=256,
        description="Processes that share the ports. Each has its own L1 cache, limits and breakers, and its metrics "
        "on the port of `metrics_address` plus its number, from 1.",
    )
    cache_address: str = Field(
        "127.0.0.1:50051",
        description="The cache service, also as xds:///name or ipv4:host:port,host:port. Empty: no cache.",
    )
    router_address: str = Field(
        "127.0.0.1:50052", description="The router, also as xds:///name or a list. Empty: no routing."
    )
    vision_address: str = Field("", description="The vision service, likewise. Empty: no pictures.")
    audio_address: str = Field(
        "", description="The audio service, likewise. Empty: no recordings and no conversations."
    )
    llm_addresses: dict[str, Addresses] = Field(
        description="The llm services of each model, as JSON: {name: host:port, name: [host:port, …]}, or xds:///name "
        "for those that the control plane lists. The first model stands in without a router.",
        min_length=1,
    )
    balance: Literal["prefix", "least_request", "round_robin"] = Field(
        "prefix",
        description="Which replica of a model gets a call: the one that has read the prompt's beginning lately and is "
        "not busier than 1.25 times the mean, the one with the fewest calls in flight, or each in turn.",
    )
    default_budget_ms: int = Field(30_000, ge=1, description="Budget of a request that names none.")
    max_budget_ms: int = Field(120_000, ge=1, description="The most any request gets; a larger budget is cut to it.")
    transcription_budget_ms: int = Field(
        3_600_000,
        ge=1,
        description="Budget of a transcription over HTTP that names none, and the most that one can name. The audio "
        "service's own limit follows the recording's length (`recording_base_ms`, `recording_time_factor`) and usually "
        "ends a slow one earlier.",
    )
    finish_reserve_ms: float = Field(
        10, ge=0, le=1_000, description="Kept back of each budget to send the last event; at most a tenth of it."
    )
    stages: StageBudgets = Field(StageBudgets(), description="The budget of each stage, as JSON.")
    ready_wait_ms: int = Field(5_000, ge=0, description="At start, how long to wait for the router's first table.")
    l1_cache_entries: int = Field(10_000, ge=0, description="The most exact answers kept in the gateway. 0: none.")
    l1_cache_bytes: int = Field(
        67_108_864,
        ge=0,
        description="The most bytes they take, in each worker. When it is full, the tenant that has the most gives up "
        "its least recently used. 0: none.",
    )
    write_behind_bytes: int = Field(
        33_554_432,
        ge=0,
        description="The most bytes, in each worker, of answers that wait for the cache to keep them, with their "
        "questions. When it is full, the oldest of the tenant that has the most is not kept.",
    )
    l1_cache_ttl_ms: int = Field(
        30_000, ge=1, description="How long one is kept before the cache is asked again, which keeps it from eviction."
    )
    max_messages: int = Field(256, ge=1, description="The most messages a conversation may have.")
    max_content_bytes: int = Field(
        limits.CONTENT_BYTES, ge=1, description="The most bytes all messages may have together."
    )
    prompt: PromptSettings = Field(PromptSettings(), description="What becomes of prompts before a model reads them.")
    judge: JudgeSettings = Field(
        JudgeSettings(), description="Who judges the stored answers that a cache with a `verify_share` draws."
    )
    cascade: CascadeSettings = Field(CascadeSettings(), description="When a fast model's answer will do.")
    guard: GuardSettings = Field(
        UNGUARDED, description="What is looked for in requests and answers of all tenants; one may have its own."
    )
    hits: HitSettings = Field(
        NO_HITS_SAID, description="Which questions the cache may answer, and how; a tenant may have its own."
    )
    kept: KeptSettings = Field(KeptSettings(), description="Answers that outlast the connection of their client.")
    tools: ToolSettings = Field(ToolSettings(), description="The tools that the mesh itself calls.")
    system_prompts: dict[str, SystemPromptSettings] = Field(
        {}, description="System prompts kept here, as JSON by the name under which requests ask for them."
    )
    warm: WarmSettings = Field(WarmSettings(), description="System prompts that models have read before anybody asks.")
    response_format: ConstraintSettings = Field(ConstraintSettings(), description="What answers may be constrained to.")
    max_images: int = Field(8, ge=1, le=64, description="The most pictures a request may have.")
    max_images_bytes: int = Field(
        limits.PICTURES_BYTES, ge=1, description="The most bytes all pictures may have together."
    )
    vision_model: str = Field("", description="The model that looks at pictures. Empty: the vision service's default.")
    labels_per_image: int = Field(
        3, ge=1, le=100, description="The most labels of an image that a language model without vision is told."
    )
    image_note: str = Field(
        "",
        max_length=1_000,
        pattern=r"^$|\{labels\}",
        description="How a language model without vision is told an image's labels: a template with `{labels}`, such "
        "as `image: {labels}`, where `{labels}` becomes `red circle (0.97), red square (0.02)`. Empty: an English "
        "sentence with percentages, which says so when the vision model is not sure.",
    )
    conversation_turns: int = Field(
        100,
        ge=1,
        le=100,
        description="How many earlier turns of a spoken conversation go along with a question, as far as the model's "
        "context holds them.",
    )
    conversation_idle_ms: int = Field(
        20_000,
        ge=100,
        le=3_600_000,
        description="The longest time without audio in a spoken conversation, which then ends; below the audio "
        "service's own `idle_timeout_ms`.",
    )
    conversation_queue_bytes: int = Field(
        262_144,
        ge=1_024,
        description="The most bytes of a conversation's audio that wait here for the audio service (8 s at 16 kHz, "
        "16 bit); a client that sends faster is held back. One message of any size may wait alone.",
    )
    tenant_queue_bytes: int = Field(
        4_194_304, ge=1_024, description="The same for all conversations of one tenant together."
    )
    max_batch: int = Field(64, ge=1, description="The most requests a batch may have.")
    api_keys: dict[str, str] = Field(
        {},
        description="SHA-256 of each API key, in hexadecimal, and its tenant. Without a key, here or of a tenant, "
        "everybody is the tenant `local`, on loopback only: see `allow_anonymous`.",
    )
    tenants: dict[str, TenantSettings] = Field({}, description="What each tenant may have, as JSON by name.")
    tenants_file: Path | None = Field(
        None, description="A YAML file like `tenants`, which it adds to; read again when it changes."
    )
    edge_tokens: bool = Field(
        False,
        description="Tenants are those of the tokens that the edge has checked (the topology's `edge.jwt`), and need "
        "no keys: whoever comes with neither is refused. Needs a `tls_dir`, which proves that it is the edge.",
    )
    allow_anonymous: bool = Field(
        False,
        validate_default=True,
        description="Start beyond loopback although no tenant has a key: everybody who can connect is the tenant "
        "`local`.",
    )
    trust_traceparent: bool = Field(
        False,
        description="Record what callers say that they record (the flag `sampled` of their `traceparent`). If false, "
        "`trace_ratio` decides on those, too, so that no caller fills the store of traces.",
    )
    redis_url: RedisUrl = Url("")
    redis_timeout_ms: float = Field(
        100,
        ge=1,
        le=10_000,
        description="The longest Redis may take to answer; then each gateway decides for itself until it is back.",
    )
    quota_lease_ms: int = Field(
        10_000,
        ge=100,
        le=600_000,
        description="With `redis_url`: when the places that a gateway holds for its tenants' requests are free again "
        "after it was killed.",
    )
    hedge: HedgeSettings = Field(HedgeSettings(), description="Second calls for late first texts.")
    retry: RetrySettings = Field(RetrySettings(), description="Another call for a failed one.")
    breaker: BreakerSettings = Field(BreakerSettings(), description="When a backend gets no more calls.")
    expected: ExpectedSettings = Field(ExpectedSettings(), description="How long backends usually need.")
    limit: LimitSettings = Field(LimitSettings(), description="How many calls a model gets at once.")
    shed: ShedSettings = Field(ShedSettings(), description="Who is refused first when it gets full.")
    single_flight: bool = Field(True, description="Whether equal requests at the same time share one generation.")
    first_token_budget_ms: int = Field(
        0,
        ge=0,
        description="The most time to the first text, for requests that do not say. 0: as long as the answer has.",
    )
    kept_share: float = Field(
        0.4,
        ge=0,
        lt=1,
        description="Share of an answer's time that a late first text leaves to another replica or model, where there "
        "is one that is well. 0: none.",
    )
    fallbacks: tuple[Literal["stale", "smaller", "template"], ...] = Field(
        ("stale", "smaller", "template"),
        description="What may stand in for a model: an expired answer or the fastest other model where it is late or "
        "broken, a fixed text where it is late. In this order.",
    )
    template: str = Field(
        TEMPLATE, min_length=1, description="The fixed text. Never in the place of an answer of a required form."
    )
    floor_share: float = Field(
        0.5, ge=0, lt=1, description="Share of the budget that optional stages leave to generation; they are cut to it."
    )
    stall_ms: float = Field(
        10_000,
        ge=0,
        description="The longest silence in the middle of an answer before its model counts as broken. 0: none.",
    )
    targets: dict[str, TargetSettings] = Field(
        {}, description="Latency targets, as JSON by stage; `ttft`, `usable` and `total` are the answer's own."
    )

    @field_validator("http_address")
    @classmethod
    def _plain_http_stays_here(cls, address: str, info: ValidationInfo) -> str:
        if address and not (info.data.get("plaintext") or info.data.get("tls_dir") or is_loopback(address)):
            raise ValueError(f"on loopback, or with a `tls_dir`, or `plaintext` true, got {shown(address)}")
        return address

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (*super().settings_customise_sources(settings_cls, *sources, **named), OfProfile(settings_cls))

    @field_validator("http")
    @classmethod
    def _room_for_a_message(cls, http: HttpSettings, info: ValidationInfo) -> HttpSettings:
        if http.max_waiting_bytes < (least := 2 * info.data.get("max_message_bytes", 0)):
            got = http.max_waiting_bytes
            raise ValueError(f"max_waiting_bytes: at least twice max_message_bytes, {least}, got {got}")
        return http

    @field_validator("llm_addresses")
    @classmethod
    def _one_list(cls, models: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        listed = [address for addresses in models.values() for address in addresses if address.startswith("xds:")]
        for model, addresses in models.items():
            if len(addresses) > 1 and addresses[0] in listed:
                raise ValueError(f"{model}: addresses, or one xds:///name, got both or several")
            if listed.count(addresses[0]) > 1:
                raise ValueError(f"{model}: an xds:///name of its own, got {addresses[0]}, which another model has")
        return models

    @field_validator("warm")
    @classmethod
    def _kept_prompts(cls, warm: WarmSettings, info: ValidationInfo) -> WarmSettings:
        kept = info.data.get("system_prompts", {})
        if unknown := next((name for name in warm.prompts if name != "*" and name not in kept), ""):
            known = ", ".join(kept) or "none"
            raise ValueError(f"prompts: `*`, or one of {known} (`system_prompts`), got {shown(unknown)}")
        return warm

    @field_validator("edge_tokens")
    @classmethod
    def _tokens_are_proven(cls, wanted: bool, info: ValidationInfo) -> bool:
        if wanted and not info.data.get("tls_dir"):
            raise ValueError("false without a `tls_dir`: in plain text nobody can prove to be the edge")
        return wanted

    @field_validator("allow_anonymous")
    @classmethod
    def _closed_by_default(cls, allowed: bool, info: ValidationInfo) -> bool:
        """As far as settings tell; what the tenants' file says is known when it is read."""
        told = info.data
        if allowed and told.get("edge_tokens"):
            raise ValueError("false with `edge_tokens`, which lets nobody in without a token")
        keys = told.get("api_keys") or any(tenant.keys for tenant in told.get("tenants", {}).values())
        somebody = keys or told.get("tenants_file") or told.get("edge_tokens")
        addresses = [told.get("address", ""), *filter(None, [told.get("http_address")])]
        beyond = next((address for address in addresses if not is_loopback(address)), "")
        if beyond and not (allowed or somebody):
            raise ValueError(f"{KEY_WANTED}, or true, to serve beyond loopback, at {shown(beyond)}")
        return allowed

    @property
    def anonymous(self) -> bool:
        """Whether everybody who can connect is let in as long as no tenant has a key."""
        served = filter(None, (self.address, self.http_address))
        return not self.edge_tokens and (self.allow_anonymous or all(map(is_loopback, served)))

    @property
    def processes(self) -> int:
        """How many processes of the service share its ports."""
        return self.workers

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        """The settings that say where it serves."""
        return ("address", "http_address") if self.http_address else ("address",)
