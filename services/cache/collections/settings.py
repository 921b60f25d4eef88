"""The settings of collections: how much there may be in them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from services.runtime.process.fixed import Fixed

MOST_TOKENS = 256  # that the embedder reads; more of a snippet would be passed over


class CollectionSettings(BaseModel):
    """How much there may be in collections of documents, and what becomes of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    snippet_tokens: Fixed[int] = Field(
        128,
        ge=32,
        le=MOST_TOKENS,
        description="Longest snippet, in word pieces of the embedder, with the heading that is searched with it. The "
        "model was trained on 128. Documents are cut again when they are put again.",
    )
    max_document_bytes: Fixed[int] = Field(
        1024 * 1024, ge=1, description="Largest document taken, in bytes of its text."
    )
    max_document_snippets: Fixed[int] = Field(10_000, ge=1, description="Most snippets of one document.")
    max_documents: Fixed[int] = Field(10_000, ge=1, description="Most documents in one collection.")
    max_snippets: Fixed[int] = Field(100_000, ge=1, description="Most snippets in one collection.")
    max_bytes: Fixed[int] = Field(128 * 1024 * 1024, ge=1, description="Size of the texts in one collection, in bytes.")
    max_collections: Fixed[int] = Field(100, ge=1, description="Most collections of one tenant.")
    max_snippets_held: int = Field(
        500_000, ge=1, description="Most snippets of all tenants; each takes 1.5 KB of memory."
    )
    max_tenant_bytes: Fixed[int | None] = Field(
        None,
        ge=1,
        description="Size of the texts in all collections of one tenant. None: 1 KiB for each of `max_snippets_held`.",
    )
    reusable_ms: Fixed[int] = Field(
        60_000,
        ge=0,
        le=86_400_000,
        description="Time for which gateways may reuse the result of a search for the same question and tenant.",
    )

    @property
    def tenant_bytes(self) -> int:
        """The size of the texts in all collections of one tenant."""
        return self.max_tenant_bytes or self.max_snippets_held * 1024
