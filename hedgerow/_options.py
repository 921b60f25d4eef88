"""What a request may say."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from hedgerow._tools import MeshTool, Tool, ToolCall

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Tier: TypeAlias = Literal["fast", "balanced", "quality"]
Callback: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `Message(**turn)` takes the shape that chat APIs share."""

    role: Role
    content: str = ""  # may be left out of an assistant's turn that calls tools
    tool_calls: Sequence[ToolCall] = ()  # of the assistant
    tool_call_id: str = ""  # of a tool: the call that this is the result of


Messages: TypeAlias = str | Sequence[Message]  # a text is one message of the user's


Priority: TypeAlias = Literal["normal", "realtime"]
GuardedThing: TypeAlias = Literal["injection", "secrets", "personal", "answer_secrets", "answer_personal"]
QuestionKind: TypeAlias = Literal["sampled", "time_bound", "personal"]
Media: TypeAlias = bytes | str | os.PathLike[str]  # an encoded picture or recording, or the path of its file


class Options(TypedDict, total=False):
    """How to answer. What is not given, or None, is the gateway's or the model's choice."""

    system: str | None  # instructions, put before the messages
    tier: Tier | None  # the class of model
    model: str | None  # one model by name; overrules the router
    budget_ms: int | None  # the whole time the answer may take; the client's default where not given
    max_tokens: int | None
    temperature: float | None  # 0 to 2; 0 is greedy
    top_p: float | None
    stop: str | Sequence[str]  # strings that end the answer and are not part of it
    seed: int | None
    json_schema: str | Mapping[str, Any] | None  # the answer is made to match; one at most of these four
    regex: str | None  # the whole answer is made to match
    choice: Sequence[str] | None  # the answer is one of these texts
    grammar: str | None  # the whole answer is made to be of it; in Lark's notation, or GBNF
    cache: Literal["auto", "use", "exact", "bypass"]  # auto: as the tenant's setting has it; use: also other wordings
    min_similarity: float | None  # the least cosine similarity for a semantic hit, 0.5 to 1; 1 turns them off
    cache_allow: Sequence[QuestionKind]  # kinds that this question may be of, and is looked up and stored all the same
    cache_category: str | None  # one of the gateway's settings, in the place of the one that its words make it
    cache_scope: Literal["tenant", "user"] | None  # who shares stored answers: `user`, each end user has its own
    end_user: str | Sequence[str]  # whom the answer is for, by your own name or names of that end user
    hit_chars_per_s: float | None  # the pace of a stored text, in characters a second; 0: all of it at once
    first_token_ms: int | None  # the most time to the first text
    priority: Priority  # `realtime`: a person waits, so the request is among the last to be shed
    attempt: int  # how often this was asked before and refused or failed; repeats are shed first
    single_attempt: bool  # reach a model once at most: no hedge, no retry
    tools: Sequence[Tool]  # what the model may have you do
    tool_choice: str | None  # `auto`, `none`, `required`, or the name of the tool to call
    parallel_tool_calls: bool | None  # whether it may call several at once
    mesh_tools: Sequence[MeshTool | str]  # what the gateway calls for this answer; a name alone: with the question
    tool_steps: int | None  # how often a model is asked what to call, at most
    tool_calls: int | None  # how many calls it may have made, at most
    frequency_penalty: float | None  # -2 to 2
    presence_penalty: float | None  # -2 to 2
    logit_bias: Mapping[int, float]  # by a token's number in the model's vocabulary, -100 to 100
    top_logprobs: int | None  # tell each token's log-probability, and those of so many of the likeliest, 0 to 20
    cascade: Sequence[Literal["rules", "form", "logprobs", "judge"]] | None  # a fast model first, a better one where
    # its answer fails one of these checks; the gateway's own where none is named
    cascade_at_once: (
        bool  # stream the fast one's text; where it fails, a `Patch` that `replaces` it is the better one's
    )
    repair: bool | None  # where the answer does not match, its model is asked once more, and a `Patch` replaces it; an
    # error without it, but in a batch
    guard: Mapping[GuardedThing, Literal["mask", "refuse"]]  # what is looked for besides what the gateway looks for
    diet: Literal["off", "system", "all"] | None  # whose messages are shortened where they say nothing
    truncation: Literal["auto", "disabled"] | None  # a conversation longer than the model's context loses its oldest
    # turns, or is refused; as the gateway is set up, where it is None
    untranslated: Literal["refuse", "omit"] | None  # a field that the model's API does not have is an error, or is left
    # out where it only tunes the answer; as the gateway is set up, where it is None
    system_prompt: str | None  # one that the gateway keeps, by its name; it comes first
    idempotency_key: str | None  # requests with this key are one and the same: who asks again, or loses the connection,
    # gets the one answer, as long as its gateway keeps it
    max_cost_usd: float | None  # the most one model may cost for the answer; models that may cost more are not asked


class Request(Options, total=False):
    """One item of a batch, with options that overrule the batch's."""

    messages: Messages | None  # may be left out where there is audio, which then is the question
    images: Media | Sequence[Media]  # pictures that belong to the question: PNG, JPEG, WebP, GIF or AVIF
    audio: Media | None  # a recording that is, or belongs to, the question: WAV, FLAC, MP3 or Ogg Opus
