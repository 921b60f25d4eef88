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
    """The class of model. Without it, the router chooses."""
    budget_ms: int | None
    """The time for the whole answer, in milliseconds. Default: the client's `default_budget_ms`."""
    first_token_ms: int | None
    """The longest time to the first text, thought or tool call, in milliseconds."""
    priority: Priority | None
    """`realtime`: a person waits, so the request is among the last to be shed. Default: `normal`."""
    max_cost_usd: float | None
    """The largest cost of one call to a model, in US dollars; models that may cost more are not asked."""
    single_attempt: bool | None
    """Reach a model once at most: no hedge, no retry."""
    attempt: int | None
    """How often this request failed before; repeats are shed first. Default: 0."""
    idempotency_key: str | None
    """A repeat with this key, also after a lost connection, gets the same answer while its gateway keeps it."""
    repair: bool | None
    """Ask the model once more when its answer does not match the form. A `Patch` replaces the text. Without it, such an
    answer is an error, except in a batch."""
    cache: CacheUse | None
    """Stored answers that may be given: `use` also those to other wordings, `exact` this question's alone, `bypass`
    none. Default: the tenant's settings."""
    min_similarity: float | None
    """The least cosine similarity for a semantic hit, 0.5 to 1; 1 turns semantic hits off."""
    cache_allow: Sequence[QuestionKind] | None
    """Kinds of question that may be cached all the same."""
    cache_category: str | None
    """A category of the gateway's settings."""
    cache_scope: CacheScope | None
    """Which callers share stored answers. `user`: each end user has its own."""
    end_user: str | Sequence[str] | None
    """The caller's name of the end user. At most 8 names."""
    hit_chars_per_s: float | None
    """The speed of a stored answer in a stream, in characters a second; 0: at once."""
    mesh_tools: Sequence[MeshTool | str] | None
    """Tools that the gateway calls for this answer. A name alone is called with the question."""
    tool_steps: int | None
    """The most times that a model may choose tools of the mesh, at least 1."""
    tool_calls: int | None
    """The most calls of the mesh's tools by a model, at least 1."""
    cascade: Sequence[Verifier] | None
    """Ask a fast model first, and a better one if its answer fails one of these checks. Empty: the gateway's own."""
    cascade_at_once: bool | None
    """With `cascade`: stream the fast model's text before it has passed. Where it fails, a `Patch` replaces it."""
    guard: Mapping[GuardedThing, GuardAction] | None
    """Further checks of the guard, beside the tenant's settings, and the action for each."""
    diet: Diet | None
    """Which messages are compressed: `off` none, `system` instructions, `all` the user's as well."""
    truncation: Truncation | None
    """A conversation longer than the model's context: `auto` leaves out its oldest turns, `disabled` is an error."""
    untranslated: Untranslated | None
    """A field that the model's API lacks: `refuse` is an error; `omit` leaves it out if it only tunes the answer."""
    system_prompt: str | None
    """The name of a system prompt of the gateway; it comes first."""
