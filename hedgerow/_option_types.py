"""The options of the mesh itself, as the SDK's keywords.

Written by `make docs` from `hedgerow/request_options/table.py`; change that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

from hedgerow._tools import MeshTool

Tier: TypeAlias = Literal["fast", "balanced", "quality"]
Priority: TypeAlias = Literal["normal", "realtime"]
CacheUse: TypeAlias = Literal["auto", "use", "exact", "bypass"]
QuestionKind: TypeAlias = Literal["sampled", "time_bound", "personal"]
CacheScope: TypeAlias = Literal["tenant", "user"]
Verifier: TypeAlias = Literal["rules", "form", "logprobs", "judge"]
Diet: TypeAlias = Literal["off", "system", "all"]
Truncation: TypeAlias = Literal["auto", "disabled"]
Untranslated: TypeAlias = Literal["refuse", "omit"]
GuardedThing: TypeAlias = Literal["injection", "secrets", "personal", "answer_secrets", "answer_personal"]
GuardAction: TypeAlias = Literal["mask", "refuse"]


class MeshOptions(TypedDict, total=False):
    """All that a request may ask of the mesh. An option that is left out, or None, is the gateway's choice."""

    tier: Tier | None
    """The class of model. Default: the router chooses."""
    budget_ms: int | None
    """The time for the whole answer, in ms. Default: the client's `default_budget_ms`."""
    first_token_ms: int | None
    """The longest time to the first text, thought or tool call, in ms."""
    priority: Priority | None
    """`realtime` requests are among the last to be shed. Default: `normal`."""
    max_cost_usd: float | None
    """The largest cost of one call to a model, in US dollars; models that may cost more are not asked."""
    single_attempt: bool | None
    """No hedge, no retry."""
    attempt: int | None
    """How often this request failed before; repeats are shed first. Default: 0."""
    idempotency_key: str | None
    """A repeat with this key, also after a lost connection, gets the same answer while its gateway keeps it."""
    repair: bool | None
    """Ask the model once more if its answer does not match the form. A `Patch` replaces the text. Without it, such an
    answer is an error, except in a batch."""
    cache: CacheUse | None
    """Stored answers: `use` also those to other wordings, `exact` this question's alone, `bypass` none. Default: the
    tenant's settings."""
    min_similarity: float | None
    """The least cosine similarity for a semantic hit, 0.5 to 1; 1 turns semantic hits off."""
    cache_allow: Sequence[QuestionKind] | None
    """Kinds of questions that may be cached."""
    cache_category: str | None
    """A category of the gateway's settings."""
    cache_scope: CacheScope | None
    """Sharing of stored answers. `user`: each end user has its own."""
    end_user: str | Sequence[str] | None
    """The caller's name of the end user. At most 8 names."""
    hit_chars_per_s: float | None
    """The speed of a stored answer in a stream, in characters a second; 0: at once."""
    mesh_tools: Sequence[MeshTool | str] | None
    """Tools that the gateway calls for this answer. A name alone is called with the question."""
    tool_steps: int | None
    """The most times that a model may choose mesh tools, at least 1."""
    tool_calls: int | None
    """The most calls of mesh tools by a model, at least 1."""
    cascade: Sequence[Verifier] | None
    """Ask a fast model first, and a better one if its answer fails one of these checks. Empty: the gateway's own."""
    cascade_at_once: bool | None
    """With `cascade`: stream the fast model's text before it has passed. If it fails, a `Patch` replaces it."""
    guard: Mapping[GuardedThing, GuardAction] | None
    """Further checks of the guard, and the action for each."""
    diet: Diet | None
    """Compressed messages: `off` none, `system` instructions, `all` the user's too."""
    truncation: Truncation | None
    """A conversation longer than the model's context: `auto` leaves out its oldest turns, `disabled` is an error."""
    untranslated: Untranslated | None
    """A field that the model's API lacks: `refuse` is an error; `omit` leaves out one that only tunes the answer."""
    system_prompt: str | None
    """The name of a system prompt of the gateway; it comes first."""
