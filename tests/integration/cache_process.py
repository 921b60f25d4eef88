"""The cache service as a process, and what it is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.chat.v1 import chat_pb2
from tests.forked import ServiceProcess

Running = tuple[ServiceProcess, cache_pb2_grpc.CacheServiceStub]
StartCache = Callable[..., Awaitable[Running]]
CAPITAL, REWORDED = "What is the capital of France?", "Tell me the capital of France."


def question(text: str, tenant: str = "acme") -> cache_pb2.Question:
    messages = [
        chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content="Be brief."),
        chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text),
    ]
    return cache_pb2.Question(tenant=tenant, model_class="fast", messages=messages)


def store(text: str, answer: str = "Paris.", tenant: str = "acme", ttl_ms: int | None = None) -> cache_pb2.StoreRequest:
    kept = cache_pb2.Answer(text=answer, model="demo", finish_reason=chat_pb2.FINISH_REASON_STOP)
    return cache_pb2.StoreRequest(question=question(text, tenant), answer=kept, ttl_ms=ttl_ms)


def lookup(
    text: str, tenant: str = "acme", min_similarity: float = 0.9, max_wrong: float | None = None
) -> cache_pb2.LookupRequest:
    return cache_pb2.LookupRequest(question=question(text, tenant), min_similarity=min_similarity, max_wrong=max_wrong)
