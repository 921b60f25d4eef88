import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from hedgerow.audio.v1 import audio_pb2 as _audio_pb2
from hedgerow.chat.v1 import chat_pb2 as _chat_pb2
from hedgerow.tool.v1 import tool_pb2 as _tool_pb2
from hedgerow.vision.v1 import vision_pb2 as _vision_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_FAST: _ClassVar[Tier]
    TIER_BALANCED: _ClassVar[Tier]
    TIER_QUALITY: _ClassVar[Tier]

class QuestionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUESTION_KIND_UNSPECIFIED: _ClassVar[QuestionKind]
    QUESTION_KIND_SAMPLED: _ClassVar[QuestionKind]
    QUESTION_KIND_TIME_BOUND: _ClassVar[QuestionKind]
    QUESTION_KIND_PERSONAL: _ClassVar[QuestionKind]

class CacheScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_SCOPE_UNSPECIFIED: _ClassVar[CacheScope]
    CACHE_SCOPE_TENANT: _ClassVar[CacheScope]
    CACHE_SCOPE_USER: _ClassVar[CacheScope]

class CacheUse(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_USE_UNSPECIFIED: _ClassVar[CacheUse]
    CACHE_USE_EXACT: _ClassVar[CacheUse]
    CACHE_USE_ANY: _ClassVar[CacheUse]

class Untranslated(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNTRANSLATED_UNSPECIFIED: _ClassVar[Untranslated]
    UNTRANSLATED_REFUSE: _ClassVar[Untranslated]
    UNTRANSLATED_OMIT: _ClassVar[Untranslated]

class GuardAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GUARD_ACTION_UNSPECIFIED: _ClassVar[GuardAction]
    GUARD_ACTION_MASK: _ClassVar[GuardAction]
    GUARD_ACTION_REFUSE: _ClassVar[GuardAction]

class Verifier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERIFIER_UNSPECIFIED: _ClassVar[Verifier]
    VERIFIER_RULES: _ClassVar[Verifier]
    VERIFIER_FORM: _ClassVar[Verifier]
    VERIFIER_LOGPROBS: _ClassVar[Verifier]
    VERIFIER_JUDGE: _ClassVar[Verifier]

class Diet(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIET_UNSPECIFIED: _ClassVar[Diet]
    DIET_OFF: _ClassVar[Diet]
    DIET_SYSTEM: _ClassVar[Diet]
    DIET_ALL: _ClassVar[Diet]

class Truncation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_UNSPECIFIED: _ClassVar[Truncation]
    TRUNCATION_AUTO: _ClassVar[Truncation]
    TRUNCATION_DISABLED: _ClassVar[Truncation]

class StageOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STAGE_OUTCOME_UNSPECIFIED: _ClassVar[StageOutcome]
    STAGE_OUTCOME_OK: _ClassVar[StageOutcome]
    STAGE_OUTCOME_OVERRUN: _ClassVar[StageOutcome]
    STAGE_OUTCOME_FAILED: _ClassVar[StageOutcome]
    STAGE_OUTCOME_SKIPPED: _ClassVar[StageOutcome]
    STAGE_OUTCOME_REPLACED: _ClassVar[StageOutcome]

class CacheVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_VERDICT_UNSPECIFIED: _ClassVar[CacheVerdict]
    CACHE_VERDICT_MISS: _ClassVar[CacheVerdict]
    CACHE_VERDICT_EXACT: _ClassVar[CacheVerdict]
    CACHE_VERDICT_SEMANTIC: _ClassVar[CacheVerdict]
    CACHE_VERDICT_BYPASS: _ClassVar[CacheVerdict]
    CACHE_VERDICT_UNAVAILABLE: _ClassVar[CacheVerdict]

class WarmKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WARM_KIND_UNSPECIFIED: _ClassVar[WarmKind]
    WARM_KIND_CONNECTION: _ClassVar[WarmKind]
    WARM_KIND_ENGINE: _ClassVar[WarmKind]
    WARM_KIND_PROMPT: _ClassVar[WarmKind]
TIER_UNSPECIFIED: Tier
TIER_FAST: Tier
TIER_BALANCED: Tier
TIER_QUALITY: Tier
QUESTION_KIND_UNSPECIFIED: QuestionKind
QUESTION_KIND_SAMPLED: QuestionKind
QUESTION_KIND_TIME_BOUND: QuestionKind
QUESTION_KIND_PERSONAL: QuestionKind
CACHE_SCOPE_UNSPECIFIED: CacheScope
CACHE_SCOPE_TENANT: CacheScope
CACHE_SCOPE_USER: CacheScope
CACHE_USE_UNSPECIFIED: CacheUse
CACHE_USE_EXACT: CacheUse
CACHE_USE_ANY: CacheUse
UNTRANSLATED_UNSPECIFIED: Untranslated
UNTRANSLATED_REFUSE: Untranslated
UNTRANSLATED_OMIT: Untranslated
GUARD_ACTION_UNSPECIFIED: GuardAction
GUARD_ACTION_MASK: GuardAction
GUARD_ACTION_REFUSE: GuardAction
VERIFIER_UNSPECIFIED: Verifier
VERIFIER_RULES: Verifier
VERIFIER_FORM: Verifier
VERIFIER_LOGPROBS: Verifier
VERIFIER_JUDGE: Verifier
DIET_UNSPECIFIED: Diet
DIET_OFF: Diet
DIET_SYSTEM: Diet
DIET_ALL: Diet
TRUNCATION_UNSPECIFIED: Truncation
TRUNCATION_AUTO: Truncation
TRUNCATION_DISABLED: Truncation
STAGE_OUTCOME_UNSPECIFIED: StageOutcome
STAGE_OUTCOME_OK: StageOutcome
STAGE_OUTCOME_OVERRUN: StageOutcome
STAGE_OUTCOME_FAILED: StageOutcome
STAGE_OUTCOME_SKIPPED: StageOutcome
STAGE_OUTCOME_REPLACED: StageOutcome
CACHE_VERDICT_UNSPECIFIED: CacheVerdict
CACHE_VERDICT_MISS: CacheVerdict
CACHE_VERDICT_EXACT: CacheVerdict
CACHE_VERDICT_SEMANTIC: CacheVerdict
CACHE_VERDICT_BYPASS: CacheVerdict
CACHE_VERDICT_UNAVAILABLE: CacheVerdict
WARM_KIND_UNSPECIFIED: WarmKind
WARM_KIND_CONNECTION: WarmKind
WARM_KIND_ENGINE: WarmKind
WARM_KIND_PROMPT: WarmKind

class CachePolicy(_message.Message):
    __slots__ = ("bypass", "min_similarity", "allow", "category", "hit_chars_per_s", "use", "scope")
    BYPASS_FIELD_NUMBER: _ClassVar[int]
    MIN_SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    HIT_CHARS_PER_S_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    bypass: bool
    min_similarity: float
    allow: _containers.RepeatedScalarFieldContainer[QuestionKind]
    category: str
    hit_chars_per_s: float
    use: CacheUse
    scope: CacheScope
    def __init__(self, bypass: _Optional[bool] = ..., min_similarity: _Optional[float] = ..., allow: _Optional[_Iterable[_Union[QuestionKind, str]]] = ..., category: _Optional[str] = ..., hit_chars_per_s: _Optional[float] = ..., use: _Optional[_Union[CacheUse, str]] = ..., scope: _Optional[_Union[CacheScope, str]] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Audio(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("messages", "images", "audio", "sampling", "response_format", "tier", "model", "budget_ms", "cache", "first_token_budget_ms", "realtime", "attempt", "single_attempt", "max_cost_usd", "tools", "tool_choice", "parallel_tool_calls", "prefix", "prompt", "cascade", "idempotency_key", "events_seen", "heartbeat_ms", "mesh_tools", "tool_limits", "guard", "repair", "sentence_ends", "original", "end_user", "untranslated")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    REALTIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SINGLE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_USD_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CASCADE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    EVENTS_SEEN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    MESH_TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_LIMITS_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_ENDS_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_FIELD_NUMBER: _ClassVar[int]
    END_USER_FIELD_NUMBER: _ClassVar[int]
    UNTRANSLATED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Message]
    images: _containers.RepeatedCompositeFieldContainer[Image]
    audio: Audio
    sampling: _chat_pb2.Sampling
    response_format: _chat_pb2.ResponseFormat
    tier: Tier
    model: str
    budget_ms: int
    cache: CachePolicy
    first_token_budget_ms: int
    realtime: bool
    attempt: int
    single_attempt: bool
    max_cost_usd: float
    tools: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Tool]
    tool_choice: _chat_pb2.ToolChoice
    parallel_tool_calls: bool
    prefix: str
    prompt: PromptPolicy
    cascade: Cascade
    idempotency_key: str
    events_seen: int
    heartbeat_ms: int
    mesh_tools: _containers.RepeatedCompositeFieldContainer[MeshTool]
    tool_limits: ToolLimits
    guard: GuardPolicy
    repair: bool
    sentence_ends: bool
    original: _chat_pb2.Original
    end_user: _containers.RepeatedScalarFieldContainer[str]
    untranslated: Untranslated
    def __init__(self, messages: _Optional[_Iterable[_Union[_chat_pb2.Message, _Mapping]]] = ..., images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ..., audio: _Optional[_Union[Audio, _Mapping]] = ..., sampling: _Optional[_Union[_chat_pb2.Sampling, _Mapping]] = ..., response_format: _Optional[_Union[_chat_pb2.ResponseFormat, _Mapping]] = ..., tier: _Optional[_Union[Tier, str]] = ..., model: _Optional[str] = ..., budget_ms: _Optional[int] = ..., cache: _Optional[_Union[CachePolicy, _Mapping]] = ..., first_token_budget_ms: _Optional[int] = ..., realtime: _Optional[bool] = ..., attempt: _Optional[int] = ..., single_attempt: _Optional[bool] = ..., max_cost_usd: _Optional[float] = ..., tools: _Optional[_Iterable[_Union[_chat_pb2.Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[_chat_pb2.ToolChoice, _Mapping]] = ..., parallel_tool_calls: _Optional[bool] = ..., prefix: _Optional[str] = ..., prompt: _Optional[_Union[PromptPolicy, _Mapping]] = ..., cascade: _Optional[_Union[Cascade, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., events_seen: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., mesh_tools: _Optional[_Iterable[_Union[MeshTool, _Mapping]]] = ..., tool_limits: _Optional[_Union[ToolLimits, _Mapping]] = ..., guard: _Optional[_Union[GuardPolicy, _Mapping]] = ..., repair: _Optional[bool] = ..., sentence_ends: _Optional[bool] = ..., original: _Optional[_Union[_chat_pb2.Original, _Mapping]] = ..., end_user: _Optional[_Iterable[str]] = ..., untranslated: _Optional[_Union[Untranslated, str]] = ...) -> None: ...

class MeshTool(_message.Message):
    __slots__ = ("name", "source", "arguments", "offered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    arguments: str
    offered: bool
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., arguments: _Optional[str] = ..., offered: _Optional[bool] = ...) -> None: ...

class ToolLimits(_message.Message):
    __slots__ = ("steps", "calls")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    calls: int
    def __init__(self, steps: _Optional[int] = ..., calls: _Optional[int] = ...) -> None: ...

class GuardPolicy(_message.Message):
    __slots__ = ("injection", "secrets", "personal", "answer_secrets", "answer_personal")
    INJECTION_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    PERSONAL_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SECRETS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_PERSONAL_FIELD_NUMBER: _ClassVar[int]
    injection: GuardAction
    secrets: GuardAction
    personal: GuardAction
    answer_secrets: GuardAction
    answer_personal: GuardAction
    def __init__(self, injection: _Optional[_Union[GuardAction, str]] = ..., secrets: _Optional[_Union[GuardAction, str]] = ..., personal: _Optional[_Union[GuardAction, str]] = ..., answer_secrets: _Optional[_Union[GuardAction, str]] = ..., answer_personal: _Optional[_Union[GuardAction, str]] = ...) -> None: ...

class Cascade(_message.Message):
    __slots__ = ("verifiers", "min_mean_logprob", "at_once")
    VERIFIERS_FIELD_NUMBER: _ClassVar[int]
    MIN_MEAN_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    verifiers: _containers.RepeatedScalarFieldContainer[Verifier]
    min_mean_logprob: float
    at_once: bool
    def __init__(self, verifiers: _Optional[_Iterable[_Union[Verifier, str]]] = ..., min_mean_logprob: _Optional[float] = ..., at_once: _Optional[bool] = ...) -> None: ...

class PromptPolicy(_message.Message):
    __slots__ = ("diet", "whole", "system", "truncation")
    DIET_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    diet: Diet
    whole: bool
    system: str
    truncation: Truncation
    def __init__(self, diet: _Optional[_Union[Diet, str]] = ..., whole: _Optional[bool] = ..., system: _Optional[str] = ..., truncation: _Optional[_Union[Truncation, str]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("accepted", "stage", "delta", "patch", "final", "transcript", "sights", "tool_call", "reasoning", "heartbeat", "citations", "relayed", "in_relayed")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    SIGHTS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    RELAYED_FIELD_NUMBER: _ClassVar[int]
    IN_RELAYED_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    stage: Stage
    delta: TextDelta
    patch: Patch
    final: Final
    transcript: Transcript
    sights: Sights
    tool_call: _chat_pb2.ToolCallDelta
    reasoning: ReasoningDelta
    heartbeat: Heartbeat
    citations: Citations
    relayed: Relayed
    in_relayed: bool
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., stage: _Optional[_Union[Stage, _Mapping]] = ..., delta: _Optional[_Union[TextDelta, _Mapping]] = ..., patch: _Optional[_Union[Patch, _Mapping]] = ..., final: _Optional[_Union[Final, _Mapping]] = ..., transcript: _Optional[_Union[Transcript, _Mapping]] = ..., sights: _Optional[_Union[Sights, _Mapping]] = ..., tool_call: _Optional[_Union[_chat_pb2.ToolCallDelta, _Mapping]] = ..., reasoning: _Optional[_Union[ReasoningDelta, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., citations: _Optional[_Union[Citations, _Mapping]] = ..., relayed: _Optional[_Union[Relayed, _Mapping]] = ..., in_relayed: _Optional[bool] = ...) -> None: ...

class Relayed(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, events: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Citations(_message.Message):
    __slots__ = ("tool", "citations")
    TOOL_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    tool: str
    citations: _containers.RepeatedCompositeFieldContainer[_tool_pb2.Citation]
    def __init__(self, tool: _Optional[str] = ..., citations: _Optional[_Iterable[_Union[_tool_pb2.Citation, _Mapping]]] = ...) -> None: ...

class Transcript(_message.Message):
    __slots__ = ("text", "confirmed_words", "final")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_WORDS_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    text: str
    confirmed_words: int
    final: bool
    def __init__(self, text: _Optional[str] = ..., confirmed_words: _Optional[int] = ..., final: _Optional[bool] = ...) -> None: ...

class Sights(_message.Message):
    __slots__ = ("pictures",)
    PICTURES_FIELD_NUMBER: _ClassVar[int]
    pictures: _containers.RepeatedCompositeFieldContainer[_vision_pb2.Labels]
    def __init__(self, pictures: _Optional[_Iterable[_Union[_vision_pb2.Labels, _Mapping]]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("trace_id", "budget_ms", "plan")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    trace_id: str
    budget_ms: float
    plan: _containers.RepeatedCompositeFieldContainer[PlannedStage]
    def __init__(self, trace_id: _Optional[str] = ..., budget_ms: _Optional[float] = ..., plan: _Optional[_Iterable[_Union[PlannedStage, _Mapping]]] = ...) -> None: ...

class PlannedStage(_message.Message):
    __slots__ = ("name", "budget_ms", "required", "after")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    budget_ms: float
    required: bool
    after: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., budget_ms: _Optional[float] = ..., required: _Optional[bool] = ..., after: _Optional[_Iterable[str]] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("name", "budget_ms", "spent_ms", "started_ms", "outcome", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    SPENT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    budget_ms: float
    spent_ms: float
    started_ms: float
    outcome: StageOutcome
    detail: str
    def __init__(self, name: _Optional[str] = ..., budget_ms: _Optional[float] = ..., spent_ms: _Optional[float] = ..., started_ms: _Optional[float] = ..., outcome: _Optional[_Union[StageOutcome, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("text", "tokens", "logprobs", "sentence_end")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_END_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    logprobs: _containers.RepeatedCompositeFieldContainer[_chat_pb2.TokenLogprob]
    sentence_end: int
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ..., logprobs: _Optional[_Iterable[_Union[_chat_pb2.TokenLogprob, _Mapping]]] = ..., sentence_end: _Optional[int] = ...) -> None: ...

class ReasoningDelta(_message.Message):
    __slots__ = ("text", "tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ...) -> None: ...

class Patch(_message.Message):
    __slots__ = ("stage", "text", "replaces")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    stage: str
    text: str
    replaces: bool
    def __init__(self, stage: _Optional[str] = ..., text: _Optional[str] = ..., replaces: _Optional[bool] = ...) -> None: ...

class CacheReport(_message.Message):
    __slots__ = ("verdict", "similarity", "key", "reason", "category", "stale")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    verdict: CacheVerdict
    similarity: float
    key: str
    reason: str
    category: str
    stale: bool
    def __init__(self, verdict: _Optional[_Union[CacheVerdict, str]] = ..., similarity: _Optional[float] = ..., key: _Optional[str] = ..., reason: _Optional[str] = ..., category: _Optional[str] = ..., stale: _Optional[bool] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("policy", "action", "subject", "reason", "at_ms")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    action: str
    subject: str
    reason: str
    at_ms: float
    def __init__(self, policy: _Optional[str] = ..., action: _Optional[str] = ..., subject: _Optional[str] = ..., reason: _Optional[str] = ..., at_ms: _Optional[float] = ...) -> None: ...

class Final(_message.Message):
    __slots__ = ("text", "finish_reason", "model", "usage", "cache", "degraded", "stages", "ttft_ms", "total_ms", "trace_id", "budget_ms", "decisions", "cost_usd", "transcript", "sights", "tool_calls", "reasoning", "logprobs", "prompt", "usable_ms", "citations", "patches", "changes", "cut")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    SIGHTS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    USABLE_MS_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    PATCHES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    text: str
    finish_reason: _chat_pb2.FinishReason
    model: str
    usage: _chat_pb2.Usage
    cache: CacheReport
    degraded: _containers.RepeatedScalarFieldContainer[str]
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    ttft_ms: float
    total_ms: float
    trace_id: str
    budget_ms: float
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    cost_usd: float
    transcript: str
    sights: Sights
    tool_calls: _containers.RepeatedCompositeFieldContainer[_chat_pb2.ToolCall]
    reasoning: str
    logprobs: _containers.RepeatedCompositeFieldContainer[_chat_pb2.TokenLogprob]
    prompt: PromptReport
    usable_ms: float
    citations: _containers.RepeatedCompositeFieldContainer[Citations]
    patches: _containers.RepeatedCompositeFieldContainer[Patch]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    cut: Change
    def __init__(self, text: _Optional[str] = ..., finish_reason: _Optional[_Union[_chat_pb2.FinishReason, str]] = ..., model: _Optional[str] = ..., usage: _Optional[_Union[_chat_pb2.Usage, _Mapping]] = ..., cache: _Optional[_Union[CacheReport, _Mapping]] = ..., degraded: _Optional[_Iterable[str]] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., ttft_ms: _Optional[float] = ..., total_ms: _Optional[float] = ..., trace_id: _Optional[str] = ..., budget_ms: _Optional[float] = ..., decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., cost_usd: _Optional[float] = ..., transcript: _Optional[str] = ..., sights: _Optional[_Union[Sights, _Mapping]] = ..., tool_calls: _Optional[_Iterable[_Union[_chat_pb2.ToolCall, _Mapping]]] = ..., reasoning: _Optional[str] = ..., logprobs: _Optional[_Iterable[_Union[_chat_pb2.TokenLogprob, _Mapping]]] = ..., prompt: _Optional[_Union[PromptReport, _Mapping]] = ..., usable_ms: _Optional[float] = ..., citations: _Optional[_Iterable[_Union[Citations, _Mapping]]] = ..., patches: _Optional[_Iterable[_Union[Patch, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., cut: _Optional[_Union[Change, _Mapping]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("what", "before", "after", "by")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    what: str
    before: str
    after: str
    by: str
    def __init__(self, what: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class PromptReport(_message.Message):
    __slots__ = ("tokens_before", "tokens_after", "estimated", "dropped_turns", "summary", "diet", "system", "turns")
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AFTER_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TURNS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    DIET_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    tokens_before: int
    tokens_after: int
    estimated: bool
    dropped_turns: int
    summary: str
    diet: _containers.RepeatedScalarFieldContainer[str]
    system: str
    turns: int
    def __init__(self, tokens_before: _Optional[int] = ..., tokens_after: _Optional[int] = ..., estimated: _Optional[bool] = ..., dropped_turns: _Optional[int] = ..., summary: _Optional[str] = ..., diet: _Optional[_Iterable[str]] = ..., system: _Optional[str] = ..., turns: _Optional[int] = ...) -> None: ...

class ListToolsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools", "sources")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[ListedTool]
    sources: _containers.RepeatedCompositeFieldContainer[ListedSource]
    def __init__(self, tools: _Optional[_Iterable[_Union[ListedTool, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[ListedSource, _Mapping]]] = ...) -> None: ...

class ListedTool(_message.Message):
    __slots__ = ("description", "source", "problem")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    description: _tool_pb2.ToolDescription
    source: str
    problem: str
    def __init__(self, description: _Optional[_Union[_tool_pb2.ToolDescription, _Mapping]] = ..., source: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ListedSource(_message.Message):
    __slots__ = ("name", "kind", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    problem: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class WarmRequest(_message.Message):
    __slots__ = ("system_prompts",)
    SYSTEM_PROMPTS_FIELD_NUMBER: _ClassVar[int]
    system_prompts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, system_prompts: _Optional[_Iterable[str]] = ...) -> None: ...

class WarmResponse(_message.Message):
    __slots__ = ("kind", "replica", "prompt", "took_ms", "before_ms", "after_ms", "problem")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    kind: WarmKind
    replica: str
    prompt: str
    took_ms: float
    before_ms: float
    after_ms: float
    problem: str
    def __init__(self, kind: _Optional[_Union[WarmKind, str]] = ..., replica: _Optional[str] = ..., prompt: _Optional[str] = ..., took_ms: _Optional[float] = ..., before_ms: _Optional[float] = ..., after_ms: _Optional[float] = ..., problem: _Optional[str] = ...) -> None: ...

class ReportWrongRequest(_message.Message):
    __slots__ = ("key", "question")
    KEY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    key: str
    question: str
    def __init__(self, key: _Optional[str] = ..., question: _Optional[str] = ...) -> None: ...

class ReportWrongResponse(_message.Message):
    __slots__ = ("tightened",)
    TIGHTENED_FIELD_NUMBER: _ClassVar[int]
    tightened: bool
    def __init__(self, tightened: _Optional[bool] = ...) -> None: ...

class ConverseRequest(_message.Message):
    __slots__ = ("options", "audio", "interrupt")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    options: ConverseOptions
    audio: bytes
    interrupt: Interrupt
    def __init__(self, options: _Optional[_Union[ConverseOptions, _Mapping]] = ..., audio: _Optional[bytes] = ..., interrupt: _Optional[_Union[Interrupt, _Mapping]] = ...) -> None: ...

class ConverseOptions(_message.Message):
    __slots__ = ("request", "format", "pause_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    request: GenerateRequest
    format: _audio_pb2.AudioFormat
    pause_ms: int
    def __init__(self, request: _Optional[_Union[GenerateRequest, _Mapping]] = ..., format: _Optional[_Union[_audio_pb2.AudioFormat, _Mapping]] = ..., pause_ms: _Optional[int] = ...) -> None: ...

class Interrupt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConverseResponse(_message.Message):
    __slots__ = ("turn", "speech_started", "transcript", "answer", "interrupted", "error")
    TURN_FIELD_NUMBER: _ClassVar[int]
    SPEECH_STARTED_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    turn: int
    speech_started: _audio_pb2.SpeechStarted
    transcript: Transcript
    answer: GenerateResponse
    interrupted: Interrupted
    error: BatchError
    def __init__(self, turn: _Optional[int] = ..., speech_started: _Optional[_Union[_audio_pb2.SpeechStarted, _Mapping]] = ..., transcript: _Optional[_Union[Transcript, _Mapping]] = ..., answer: _Optional[_Union[GenerateResponse, _Mapping]] = ..., interrupted: _Optional[_Union[Interrupted, _Mapping]] = ..., error: _Optional[_Union[BatchError, _Mapping]] = ...) -> None: ...

class Interrupted(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class GenerateBatchRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[GenerateRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[GenerateRequest, _Mapping]]] = ...) -> None: ...

class GenerateBatchResponse(_message.Message):
    __slots__ = ("index", "final", "error")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    index: int
    final: Final
    error: BatchError
    def __init__(self, index: _Optional[int] = ..., final: _Optional[_Union[Final, _Mapping]] = ..., error: _Optional[_Union[BatchError, _Mapping]] = ...) -> None: ...

class BatchError(_message.Message):
    __slots__ = ("code", "reason", "message", "metadata", "retry_delay", "trace_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    retry_delay: _duration_pb2.Duration
    trace_id: str
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retry_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...
