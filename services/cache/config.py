"""Settings of the cache service."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from services.cache.collections.settings import CollectionSettings
from services.cache.encryption import Keys
from services.cache.entries import OVERHEAD_BYTES
from services.runtime import limits
from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed
from services.runtime.security.secrets import Url
from services.runtime.shared_state import RedisUrl

# The modules of stores, by the name that the setting `store` has for them.
STORES = {"file": "services.cache.file_store", "redis": "services.cache.redis_store"}
_REQUEST_BYTES = 1024  # of a store, beside its question and its answer
_DOCUMENT_LINES = 4  # source, title, description, and what is around them: at most 1024 bytes each
_ENTRY_BYTES = 5 * 1024  # of an entry of usual size: question, answer, vector
_DAY_MS = 24 * 60 * 60 * 1000
_LONGEST_MS = 100 * 365 * _DAY_MS  # so that when an answer ends is a number that SQLite and Redis take


class CacheSettings(ServiceSettings):
    """Read from `HEDGEROW_CACHE_*`."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_CACHE_")

    address: str = Field("127.0.0.1:50051", description="Address of gRPC, host:port.")
    store: str = Field(
        "",
        description=f"Store of the entries: {' or '.join(f'`{name}`' for name in STORES)}. Empty: Redis if there is a "
        "`redis_url`, else the file.",
    )
    database: str = Field("", description="SQLite file of the entries, unless Redis has them. Empty: memory only.")
    redis_url: RedisUrl = Url("")
    encryption_key: Keys = Field(
        SecretStr(""),
        description="Keys of 32 bytes in base64 (`openssl rand -base64 32`), separated by commas: the first "
        "encrypts, each decrypts.",
    )
    redis_timeout_ms: Fixed[float] = Field(
        250,
        ge=1,
        description="With `redis_url`: Redis counts as down when it takes longer for a call. A lookup waits half of "
        "the time it has left at most, and only after memory had to let entries go.",
    )
    max_waiting_bytes: Fixed[int] = Field(
        64 * 1024 * 1024,
        ge=1,
        description="Size of the requests that wait, in bytes, and as much each of what waits for the disk and of "
        "documents that are put; a tenant may have as much of it as is free. Requests beyond it are refused as "
        "RESOURCE_EXHAUSTED. In memory a request takes up to five times its size.",
    )
    default_ttl_ms: int = Field(_DAY_MS, ge=1, description="Lifetime of an answer when the caller names none.")
    max_ttl_ms: int = Field(30 * _DAY_MS, ge=1, le=_LONGEST_MS, description="Longest lifetime of an answer.")
    stale_ms: int = Field(
        600_000,
        ge=0,
        le=_LONGEST_MS,
        description="Time after its lifetime in which an answer may replace a missing one.",
    )
    max_bytes: int = Field(256 * 1024 * 1024, ge=1, description="Memory for entries; a small one takes 3.7 KB.")
    max_entries: Fixed[int | None] = Field(
        None, ge=1, description="Most entries. None: one for each 5 KiB of `max_bytes`."
    )
    max_question_bytes: Fixed[int] = Field(
        limits.QUESTION_BYTES,
        ge=1,
        description="Largest question taken, in bytes of its message: more than the largest that a gateway admits.",
    )
    max_answer_bytes: Fixed[int] = Field(256 * 1024, ge=1, description="Largest answer taken, in bytes of its message.")
    similarity_threshold: float = Field(
        0.945, ge=0.5, le=1, description="Least cosine similarity of a semantic hit. 1: no semantic hits."
    )
    verify_share: float = Field(0, ge=0, le=1, description="Share of the lookups that a model judges.")
    max_wrong: float = Field(
        0.01, gt=0, le=1, description="With a `verify_share`: allowed share of wrong hits of a tenant's lookups."
    )
    embedder: Literal["ctranslate2", "sentence_transformers", "none"] = Field(
        "ctranslate2",
        description="Runtime of all-MiniLM-L6-v2: int8 on CTranslate2, or float32. `none`: exact answers only and no "
        "collections, without `hedgerow[cache]`.",
    )
    load_embedder: Literal["start", "first_use"] = Field(
        "start", description="When the embedding model (125 MB) is loaded."
    )
    model: Path | None = Field(
        None,
        description="Folder of that model for CTranslate2. Empty: converted into `~/.cache/hedgerow` once, with "
        "`hedgerow[embedder]`.",
    )
    model_cache: Fixed[Path] = Field(
        Path("~/.cache/hedgerow"), description="Without a `model`: folder that keeps the converted model."
    )
    max_embedded_tokens: Fixed[int] = Field(
        128,
        ge=8,
        le=256,
        description="Longer texts get no semantic hit, nor do those of more than 16 characters for each token. The "
        "model was trained on 128 word pieces.",
    )
    embedding_cache_bytes: Fixed[int] = Field(
        16 * 1024 * 1024, ge=1, description="Memory for embeddings; one takes 2.3 KB."
    )
    embedding_cache_ttl_ms: Fixed[int] = Field(
        3_600_000, ge=1, description="An embedding is forgotten after so long without a request for it."
    )
    sweep_interval_ms: Fixed[int] = Field(
        1_000, ge=10, le=60_000, description="How often expired entries are removed and uses are written to disk."
    )
    collections_database: str = Field(
        "", description="SQLite file of the collections; each replica has its own. Empty: a temporary file."
    )
    collections: CollectionSettings = Field(
        CollectionSettings(), description="How much there may be in collections, as JSON."
    )
    watch_queue: Fixed[int] = Field(
        4_096, ge=1, description="Removals a watcher may be behind before its stream is ended."
    )

    @field_validator("model", mode="before")
    @classmethod
    def _none_is_named(cls, given: object) -> object:
        return given or None

    @property
    def entries(self) -> int:
        """The most entries."""
        return self.max_entries or max(1, self.max_bytes // _ENTRY_BYTES)

    @property
    def store_used(self) -> str:
        """The name of the store where entries are kept."""
        return self.store or ("redis" if self.redis_url else "file")

    @model_validator(mode="after")
    def _the_store_is_known(self) -> Self:
        if self.store_used not in STORES:
            raise ValueError(f"store: one of {', '.join(STORES)}")
        if self.store_used == "redis" and not self.redis_url:
            raise ValueError("store: redis needs a redis_url")
        return self

    @model_validator(mode="after")
    def _the_largest_fits(self) -> Self:
        least = self.max_question_bytes + self.max_answer_bytes + 2 * OVERHEAD_BYTES
        if self.max_bytes < least:
            raise ValueError(
                f"max_bytes: at least max_question_bytes + max_answer_bytes + {2 * OVERHEAD_BYTES}, {least}"
            )
        largest = self.max_question_bytes + self.max_answer_bytes + _REQUEST_BYTES
        if self.max_message_bytes < largest:
            raise ValueError(
                f"max_message_bytes: at least max_question_bytes + max_answer_bytes + {_REQUEST_BYTES}, {largest}"
            )
        document = self.collections.max_document_bytes + _REQUEST_BYTES * _DOCUMENT_LINES
        if self.max_message_bytes < document:
            raise ValueError(f"max_message_bytes: at least collections.max_document_bytes and 4096, {document}")
        if self.max_waiting_bytes < 2 * largest:
            raise ValueError(f"max_waiting_bytes: at least twice the largest request, {2 * largest}")
        return self
