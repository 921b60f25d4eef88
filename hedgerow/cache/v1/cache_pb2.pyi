from hedgerow.chat.v1 import chat_pb2 as _chat_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_MISS: _ClassVar[Verdict]
    VERDICT_EXACT: _ClassVar[Verdict]
    VERDICT_SEMANTIC: _ClassVar[Verdict]
VERDICT_UNSPECIFIED: Verdict
VERDICT_MISS: Verdict
VERDICT_EXACT: Verdict
VERDICT_SEMANTIC: Verdict

class Question(_message.Message):
    __slots__ = ("tenant", "model_class", "messages", "sampling", "response_format", "attachments", "category", "exact_only", "ignore_case", "end_user")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_CLASS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    EXACT_ONLY_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    END_USER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    model_class: str
    messages: _containers.RepeatedCompositeFieldContainer[_chat_pb2.Message]
    sampling: _chat_pb2.Sampling
    response_format: _chat_pb2.ResponseFormat
    attachments: _containers.RepeatedScalarFieldContainer[str]
    category: str
    exact_only: bool
    ignore_case: bool
    end_user: str
    def __init__(self, tenant: _Optional[str] = ..., model_class: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_chat_pb2.Message, _Mapping]]] = ..., sampling: _Optional[_Union[_chat_pb2.Sampling, _Mapping]] = ..., response_format: _Optional[_Union[_chat_pb2.ResponseFormat, _Mapping]] = ..., attachments: _Optional[_Iterable[str]] = ..., category: _Optional[str] = ..., exact_only: _Optional[bool] = ..., ignore_case: _Optional[bool] = ..., end_user: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("text", "model", "finish_reason", "usage")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    model: str
    finish_reason: _chat_pb2.FinishReason
    usage: _chat_pb2.Usage
    def __init__(self, text: _Optional[str] = ..., model: _Optional[str] = ..., finish_reason: _Optional[_Union[_chat_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_chat_pb2.Usage, _Mapping]] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("question", "min_similarity", "stale_within_ms", "max_wrong")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    MIN_SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    STALE_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_WRONG_FIELD_NUMBER: _ClassVar[int]
    question: Question
    min_similarity: float
    stale_within_ms: int
    max_wrong: float
    def __init__(self, question: _Optional[_Union[Question, _Mapping]] = ..., min_similarity: _Optional[float] = ..., stale_within_ms: _Optional[int] = ..., max_wrong: _Optional[float] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("verdict", "answer", "key", "similarity", "ttl_ms", "refused", "stale", "local_only", "epoch", "sample", "expired_ms", "language")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_MS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    answer: Answer
    key: str
    similarity: float
    ttl_ms: int
    refused: str
    stale: Answer
    local_only: bool
    epoch: int
    sample: Sample
    expired_ms: int
    language: str
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., key: _Optional[str] = ..., similarity: _Optional[float] = ..., ttl_ms: _Optional[int] = ..., refused: _Optional[str] = ..., stale: _Optional[_Union[Answer, _Mapping]] = ..., local_only: _Optional[bool] = ..., epoch: _Optional[int] = ..., sample: _Optional[_Union[Sample, _Mapping]] = ..., expired_ms: _Optional[int] = ..., language: _Optional[str] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("key", "score", "accepted", "asked", "answer", "category")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    key: str
    score: float
    accepted: bool
    asked: str
    answer: Answer
    category: str
    def __init__(self, key: _Optional[str] = ..., score: _Optional[float] = ..., accepted: _Optional[bool] = ..., asked: _Optional[str] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., category: _Optional[str] = ...) -> None: ...

class StoreRequest(_message.Message):
    __slots__ = ("question", "answer", "ttl_ms", "epoch")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    question: Question
    answer: Answer
    ttl_ms: int
    epoch: int
    def __init__(self, question: _Optional[_Union[Question, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., ttl_ms: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class StoreResponse(_message.Message):
    __slots__ = ("key", "ttl_ms", "local_only", "skipped")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    key: str
    ttl_ms: int
    local_only: bool
    skipped: bool
    def __init__(self, key: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., local_only: _Optional[bool] = ..., skipped: _Optional[bool] = ...) -> None: ...

class InvalidateRequest(_message.Message):
    __slots__ = ("key", "tenant", "owner")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    key: str
    tenant: str
    owner: str
    def __init__(self, key: _Optional[str] = ..., tenant: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class InvalidateResponse(_message.Message):
    __slots__ = ("removed", "local_only")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    removed: int
    local_only: bool
    def __init__(self, removed: _Optional[int] = ..., local_only: _Optional[bool] = ...) -> None: ...

class ReportVerdictRequest(_message.Message):
    __slots__ = ("tenant", "key", "sample", "right", "question")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    key: str
    sample: Sample
    right: bool
    question: Question
    def __init__(self, tenant: _Optional[str] = ..., key: _Optional[str] = ..., sample: _Optional[_Union[Sample, _Mapping]] = ..., right: _Optional[bool] = ..., question: _Optional[_Union[Question, _Mapping]] = ...) -> None: ...

class ReportVerdictResponse(_message.Message):
    __slots__ = ("tightened",)
    TIGHTENED_FIELD_NUMBER: _ClassVar[int]
    tightened: bool
    def __init__(self, tightened: _Optional[bool] = ...) -> None: ...

class WatchInvalidationsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchInvalidationsResponse(_message.Message):
    __slots__ = ("key", "tenant", "epoch")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    key: str
    tenant: str
    epoch: int
    def __init__(self, key: _Optional[str] = ..., tenant: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class EmbedRequest(_message.Message):
    __slots__ = ("texts", "tenant")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., tenant: _Optional[str] = ...) -> None: ...

class Embedding(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class EmbedResponse(_message.Message):
    __slots__ = ("embeddings", "model")
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    embeddings: _containers.RepeatedCompositeFieldContainer[Embedding]
    model: str
    def __init__(self, embeddings: _Optional[_Iterable[_Union[Embedding, _Mapping]]] = ..., model: _Optional[str] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class CategoryThreshold(_message.Message):
    __slots__ = ("category", "threshold", "verified", "drift")
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    category: str
    threshold: float
    verified: int
    drift: str
    def __init__(self, category: _Optional[str] = ..., threshold: _Optional[float] = ..., verified: _Optional[int] = ..., drift: _Optional[str] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("lookups", "exact_hits", "semantic_hits", "misses", "refused", "stores", "evictions", "expirations", "entries", "bytes", "embedding_hits", "embedding_misses", "local_only", "tightened", "verified", "verified_wrong", "wrong_share", "wrong_share_lower", "wrong_share_upper", "threshold_alarms", "threshold", "category_thresholds", "drift")
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    EXACT_HITS_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_HITS_FIELD_NUMBER: _ClassVar[int]
    MISSES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATIONS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_HITS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_MISSES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIGHTENED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_WRONG_FIELD_NUMBER: _ClassVar[int]
    WRONG_SHARE_FIELD_NUMBER: _ClassVar[int]
    WRONG_SHARE_LOWER_FIELD_NUMBER: _ClassVar[int]
    WRONG_SHARE_UPPER_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_ALARMS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    lookups: int
    exact_hits: int
    semantic_hits: int
    misses: int
    refused: int
    stores: int
    evictions: int
    expirations: int
    entries: int
    bytes: int
    embedding_hits: int
    embedding_misses: int
    local_only: int
    tightened: int
    verified: int
    verified_wrong: int
    wrong_share: float
    wrong_share_lower: float
    wrong_share_upper: float
    threshold_alarms: int
    threshold: float
    category_thresholds: _containers.RepeatedCompositeFieldContainer[CategoryThreshold]
    drift: str
    def __init__(self, lookups: _Optional[int] = ..., exact_hits: _Optional[int] = ..., semantic_hits: _Optional[int] = ..., misses: _Optional[int] = ..., refused: _Optional[int] = ..., stores: _Optional[int] = ..., evictions: _Optional[int] = ..., expirations: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., embedding_hits: _Optional[int] = ..., embedding_misses: _Optional[int] = ..., local_only: _Optional[int] = ..., tightened: _Optional[int] = ..., verified: _Optional[int] = ..., verified_wrong: _Optional[int] = ..., wrong_share: _Optional[float] = ..., wrong_share_lower: _Optional[float] = ..., wrong_share_upper: _Optional[float] = ..., threshold_alarms: _Optional[int] = ..., threshold: _Optional[float] = ..., category_thresholds: _Optional[_Iterable[_Union[CategoryThreshold, _Mapping]]] = ..., drift: _Optional[str] = ...) -> None: ...
