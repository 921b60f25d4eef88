"""What a request may say. `docs/sdk.md` has these as tables: `python -m docs.sdk` writes them from here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from hedgerow._tools import MeshTool, Tool, ToolCall

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Tier: TypeAlias = Literal["fast", "balanced", "quality"]
Priority: TypeAlias = Literal["normal", "realtime"]
CacheUse: TypeAlias = Literal["auto", "use", "exact", "bypass"]
CacheScope: TypeAlias = Literal["tenant", "user"]
QuestionKind: TypeAlias = Literal["sampled", "time_bound", "personal"]
Verifier: TypeAlias = Literal["rules", "form", "logprobs", "judge"]
GuardedThing: TypeAlias = Literal["injection", "secrets", "personal", "answer_secrets", "answer_personal"]
GuardAction: TypeAlias = Literal["mask", "refuse"]
Diet: TypeAlias = Literal["off", "system", "all"]
Truncation: TypeAlias = Literal["auto", "disabled"]
Untranslated: TypeAlias = Literal["refuse", "omit"]
Callback: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `Message(**turn)` takes the shape that chat APIs share."""

    role: Role
    content: str = ""  # may be left out of an assistant's turn that calls tools
    tool_calls: Sequence[ToolCall] = ()  # of the assistant
    tool_call_id: str = ""  # of a tool: the call that this is the result of


# A text is one message of the user's. A mapping has the shape of chat APIs: `{"role": "user", "content": "Hi."}`.
Messages: TypeAlias = str | Sequence[Message | Mapping[str, Any]]


Media: TypeAlias = bytes | str | os.PathLike[str]  # an encoded picture or recording, or the path of its file


class Options(TypedDict, total=False):
    """How to answer. An option that is left out, or None, is the gateway's or the model's choice."""

    system: str | None
    """Instructions, put before the messages."""
    tier: Tier | None
    """The class of model. Without it, the router chooses."""
    model: str | None
    """One model by name; overrules the router. `auto` is the same as none."""
    budget_ms: int | None
    """The whole time the answer may take, in milliseconds. Default: the client's `default_budget_ms`."""
    first_token_ms: int | None
    """The most time to the first text, in milliseconds."""
    priority: Priority
    """`realtime`: a person waits, so the request is among the last to be shed. Default: `normal`."""
    max_tokens: int | None
    """The most tokens to generate."""
    temperature: float | None
    """0 to 2; 0 is greedy."""
    top_p: float | None
    """Nucleus sampling: the share of probability that is drawn from, up to 1."""
    frequency_penalty: float | None
    """-2 to 2; above 0, tokens are less likely the more often they have occurred."""
    presence_penalty: float | None
    """-2 to 2; above 0, tokens that have occurred are less likely."""
    logit_bias: Mapping[int, float]
    """Added to a token's logit, by its number in the model's vocabulary: -100 to 100."""
    top_logprobs: int | None
    """Return each token's log-probability, and those of this many of the likeliest tokens: 0 to 20."""
    stop: str | Sequence[str]
    """Strings that end the answer and are not part of it."""
    seed: int | None
    """Makes sampling repeatable where the engine can."""
    json_schema: str | Mapping[str, Any] | type | None
    """A JSON Schema, as text or parsed, or a class that has one: the answer matches it. At most one of `json_schema`,
    `regex`, `choice` and `grammar`."""
    regex: str | None
    """A regular expression that the whole answer matches."""
    choice: Sequence[str] | None
    """Texts; the answer is one of them."""
    grammar: str | None
    """A grammar in Lark's notation, or GBNF, that the whole answer matches."""
    repair: bool | None
    """Ask the model once more where its answer does not match; a `Patch` replaces the text. Without it, such an answer
    is an error, except in a batch."""
    cache: CacheUse
    """Which stored answers are wanted: `use` also those to other wordings, `exact` this question's alone, `bypass`
    none. Default: `auto`, as the tenant's settings say."""
    min_similarity: float | None
    """The least cosine similarity for a semantic hit, 0.5 to 1; 1 turns them off."""
    cache_allow: Sequence[QuestionKind]
    """Kinds of question that are looked up and stored all the same."""
    cache_category: str | None
    """The question's category, of those in the gateway's settings."""
    cache_scope: CacheScope | None
    """Which callers share stored answers. `user`: each end user has its own."""
    end_user: str | Sequence[str]
    """The end user whom the answer is for, by your own name or names of that user."""
    hit_chars_per_s: float | None
    """The pace of a stored text, in characters a second; 0: all of it at once."""
    tools: Sequence[Tool | Mapping[str, Any] | Callable[..., Any]]
    """Tools of yours that the model may call: as `Tool`, as the mapping that chat APIs share, or a function with types
    and a docstring. `run_tools` calls them, too."""
    tool_choice: str | None
    """`auto`, `none`, `required`, or the name of the tool to call."""
    parallel_tool_calls: bool | None
    """Whether the model may call several tools at once."""
    mesh_tools: Sequence[MeshTool | str]
    """Tools that the gateway calls for this answer. A name alone is called with the question."""
    tool_steps: int | None
    """How often a model is asked which tools of the mesh to call, at most."""
    tool_calls: int | None
    """How many calls of the mesh's tools a model may have made, at most."""
    cascade: Sequence[Verifier] | None
    """Ask a fast model first, and a better one where its answer fails one of these checks. Empty: the gateway's own."""
    cascade_at_once: bool
    """With `cascade`: stream the fast model's text before it has passed. Where it fails, a `Patch` replaces it."""
    guard: Mapping[GuardedThing, GuardAction]
    """What the guard looks for in addition to the tenant's settings, and what it does."""
    diet: Diet | None
    """Whose messages are compressed."""
    truncation: Truncation | None
    """What becomes of a conversation longer than the model's context: `auto` leaves out its oldest turns, `disabled` is
    an error."""
    untranslated: Untranslated | None
    """What becomes of a field that the model's API does not have: `refuse` is an error; `omit` leaves it out where it
    only tunes the answer."""
    system_prompt: str | None
    """The name of a system prompt that the gateway keeps; it comes first."""
    idempotency_key: str | None
    """Requests with this key are one and the same: a repeat, or a client that lost its connection, gets the one answer,
    as long as its gateway keeps it."""
    attempt: int
    """How often this was asked before and refused or failed; repeats are shed first. Default: 0."""
    single_attempt: bool
    """Reach a model once at most: no hedge, no retry."""
    max_cost_usd: float | None
    """The most that one call to a model may cost; models that may cost more are not asked."""


class Request(Options, total=False):
    """One item of a batch, with options that overrule the batch's."""

    messages: Messages | None
    """The question: a text, or the turns of a conversation. May be left out where there is audio."""
    images: Media | Sequence[Media]
    """Pictures that belong to the question, as bytes or paths: PNG, JPEG, WebP, GIF or AVIF."""
    audio: Media | None
    """A recording that is, or belongs to, the question: WAV, FLAC, MP3 or Ogg Opus."""
