"""Answers from a Hedgerow gateway, streamed, under an explicit time budget.

    import hedgerow

    with hedgerow.Client() as client:
        answer = client.ask("What is the capital of France?", budget_ms=300, on_token=print)
        print(answer.finish_reason, answer.cache.verdict, answer.timings.first_token_ms)

`VisionClient` and `AudioClient` call the services for pictures and for speech directly; `CollectionClient` stores
documents for answers.

The clients are imported when first used, because gRPC takes longer to load than the rest of a small program.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hedgerow._collected import (
    Collection,
    CollectionDocument,
    CollectionHit,
    CollectionPut,
    CollectionSearch,
    Passage,
)
from hedgerow._errors import (
    Cancelled,
    DeadlineExceeded,
    HedgerowError,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from hedgerow._events import (
    Accepted,
    Answer,
    CacheReport,
    CacheVerdict,
    Change,
    Event,
    Final,
    FinishReason,
    Patch,
    PlannedStage,
    PromptReport,
    ReasoningDelta,
    Sights,
    TextDelta,
    Timings,
    TokenLogprob,
    Transcript,
    Usage,
)
from hedgerow._image_labels import (
    Array,
    Classification,
    Embeddings,
    FrameLabels,
    Inference,
    Label,
    Tensor,
    VisionModel,
    VisionTiming,
)
from hedgerow._option_types import (
    CacheScope,
    CacheUse,
    Diet,
    GuardAction,
    GuardedThing,
    Priority,
    QuestionKind,
    Tier,
    Truncation,
    Untranslated,
    Verifier,
)
from hedgerow._options import Media, Message, Messages, Options, Request, Role
from hedgerow._reports import Decision, PartialAnswer, StageOutcome, StageReport
from hedgerow._speech import (
    AudioFormat,
    Behind,
    Heard,
    Partial,
    Recording,
    Segment,
    SpeechModel,
    SpeechStarted,
    SpeechSummary,
    Transcription,
    Word,
)
from hedgerow._tls import Tls
from hedgerow._tools import Citation, Citations, ListedTool, MeshTool, Tool, ToolCall, ToolCallDelta, ToolSource
from hedgerow._turns import ConversationEvent, Interrupted, TurnFailed

if TYPE_CHECKING:
    from hedgerow._aio import AsyncClient, AsyncConversation
    from hedgerow._answer_stream import AnswerStream
    from hedgerow._answer_stream_aio import AsyncAnswerStream
    from hedgerow._audio import AudioClient
    from hedgerow._audio_aio import AsyncAudioClient
    from hedgerow._client import Client, Conversation
    from hedgerow._collection import CollectionClient
    from hedgerow._collection_aio import AsyncCollectionClient
    from hedgerow._streams import EventStream
    from hedgerow._streams_aio import AsyncEventStream
    from hedgerow._vision import VisionClient
    from hedgerow._vision_aio import AsyncVisionClient

__all__ = [
    "Accepted",
    "Answer",
    "AnswerStream",
    "Array",
    "AsyncAnswerStream",
    "AsyncAudioClient",
    "AsyncClient",
    "AsyncCollectionClient",
    "AsyncConversation",
    "AsyncEventStream",
    "AsyncVisionClient",
    "AudioClient",
    "AudioFormat",
    "Behind",
    "CacheReport",
    "CacheScope",
    "CacheUse",
    "CacheVerdict",
    "Cancelled",
    "Change",
    "Citation",
    "Citations",
    "Classification",
    "Client",
    "Collection",
    "CollectionClient",
    "CollectionDocument",
    "CollectionHit",
    "CollectionPut",
    "CollectionSearch",
    "Conversation",
    "ConversationEvent",
    "DeadlineExceeded",
    "Decision",
    "Diet",
    "Embeddings",
    "Event",
    "EventStream",
    "Final",
    "FinishReason",
    "FrameLabels",
    "GuardAction",
    "GuardedThing",
    "Heard",
    "HedgerowError",
    "Inference",
    "Internal",
    "Interrupted",
    "InvalidArgument",
    "Label",
    "ListedTool",
    "Media",
    "MeshTool",
    "Message",
    "Messages",
    "NotFound",
    "Options",
    "Partial",
    "PartialAnswer",
    "Passage",
    "Patch",
    "PermissionDenied",
    "PlannedStage",
    "Priority",
    "PromptReport",
    "QuestionKind",
    "ReasoningDelta",
    "Recording",
    "Request",
    "ResourceExhausted",
    "Role",
    "Segment",
    "Sights",
    "SpeechModel",
    "SpeechStarted",
    "SpeechSummary",
    "StageOutcome",
    "StageReport",
    "Tensor",
    "TextDelta",
    "Tier",
    "Timings",
    "Tls",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolSource",
    "Transcript",
    "Transcription",
    "Truncation",
    "TurnFailed",
    "Unauthenticated",
    "Unavailable",
    "Untranslated",
    "Usage",
    "Verifier",
    "VisionClient",
    "VisionModel",
    "VisionTiming",
    "Word",
]

_LAZY = {
    "AnswerStream": "_answer_stream",
    "AsyncAnswerStream": "_answer_stream_aio",
    "AsyncAudioClient": "_audio_aio",
    "AsyncClient": "_aio",
    "AsyncCollectionClient": "_collection_aio",
    "AsyncConversation": "_aio",
    "AsyncEventStream": "_streams_aio",
    "AsyncVisionClient": "_vision_aio",
    "AudioClient": "_audio",
    "Client": "_client",
    "CollectionClient": "_collection",
    "Conversation": "_client",
    "EventStream": "_streams",
    "VisionClient": "_vision",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("hedgerow")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value
