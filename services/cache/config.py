"""Settings of the cache service."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from services.runtime import limits
from services.runtime.config import ServiceSettings
from services.runtime.shared_state import RedisUrl

_DAY_MS = 24 * 60 * 60 * 1000


class CacheSettings(ServiceSettings):
    """Read from `HEDGEROW_CACHE_*`."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_CACHE_")

    address: str = Field("127.0.0.1:50051", description="Where to serve gRPC, host:port.")
    database: str = Field(
        "", description="SQLite file that keeps the entries, unless Redis does. Empty: forgotten when the process ends."
    )
    redis_url: RedisUrl = ""
    redis_timeout_ms: float = Field(
        250,
        ge=1,
        description="With `redis_url`: Redis counts as away when it takes longer for a call. A lookup waits half of "
        "the time it has left at most, and only after memory had to let entries go.",
    )
    max_queued: int = Field(
        10_000,
        ge=1,
        description="Stores, and as many removals, that wait for Redis while it is away. The oldest stores make room; "
        "a removal too many is refused.",
    )
    default_ttl_ms: int = Field(_DAY_MS, ge=1, description="How long an answer is kept when the caller does not say.")
    max_ttl_ms: int = Field(30 * _DAY_MS, ge=1, description="The longest an answer is kept, whatever the caller says.")
    stale_ms: int = Field(
        600_000,
        ge=0,
        description="How long an answer is kept after its time, to stand in where there would be none. 0: not at all.",
    )
    max_entries: int = Field(50_000, ge=1, description="Entries held; the least recently used go first.")
    max_bytes: int = Field(256 * 1024 * 1024, ge=1, description="Size of the entries held, in bytes.")
    max_question_bytes: int = Field(
        limits.QUESTION_BYTES,
        ge=1,
        description="Largest question taken, in bytes of its message: more than the largest that a gateway admits.",
    )
    max_answer_bytes: int = Field(256 * 1024, ge=1, description="Largest answer taken, in bytes of its message.")
    similarity_threshold: float = Field(
        0.95, ge=0.5, le=1, description="Least cosine similarity of a semantic hit. 1 turns semantic hits off."
    )
    embedder: Literal["ctranslate2", "sentence_transformers"] = Field(
        "ctranslate2", description="What runs all-MiniLM-L6-v2: int8 on CTranslate2, or the reference in float32."
    )
    model_cache: Path = Field(
        Path("~/.cache/hedgerow"), description="Folder that keeps the model converted for CTranslate2 between starts."
    )
    max_embedded_tokens: int = Field(
        128, ge=8, le=256, description="Longer texts get no semantic hit. The model was trained on 128 word pieces."
    )
    embedding_cache_entries: int = Field(10_000, ge=1, description="Embeddings kept in memory, 1.5 KB each.")
    sweep_interval_ms: int = Field(
        1_000, ge=10, le=60_000, description="How often expired entries are removed and uses are written to disk."
    )
    watch_queue: int = Field(4_096, ge=1, description="Removals a watcher may be behind before its stream is ended.")

    @model_validator(mode="after")
    def _one_entry_fits(self) -> Self:
        if self.max_question_bytes + self.max_answer_bytes > self.max_bytes:
            raise ValueError("max_bytes: at least max_question_bytes + max_answer_bytes")
        return self
