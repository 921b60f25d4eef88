"""The options of a request, one row each. `make docs` writes what follows from them."""

from __future__ import annotations

from hedgerow.request_options import Kind, RequestOption, Surface

_HTTP_ALONE = frozenset({Surface.HTTP})
_SDK_ALONE = frozenset({Surface.SDK})

OPTIONS = (
    RequestOption(
        "tier",
        Kind.WORD,
        "The class of model. Default: the router chooses.",
        words=("fast", "balanced", "quality"),
        http_words=("auto", "fast", "balanced", "quality"),
        alias="Tier",
    ),
    RequestOption(
        "budget_ms",
        Kind.WHOLE,
        "The time for the whole answer, in ms.",
        least=1,
        sdk_note="Default: the client's `default_budget_ms`.",
    ),
    RequestOption(
        "first_token_ms",
        Kind.WHOLE,
        "The longest time to the first text, thought or tool call, in ms.",
        field="first_token_budget_ms",
        least=1,
    ),
    RequestOption(
        "silence_ms",
        Kind.WHOLE,
        "The longest silence after the first text, in ms; 0: no limit.",
        field="",
        least=0,
        on=_HTTP_ALONE,
    ),
    RequestOption(
        "priority",
        Kind.WORD,
        "`realtime` requests are among the last to be shed. Default: `normal`.",
        field="realtime",
        words=("normal", "realtime"),
        http_words=("realtime", "normal"),
        alias="Priority",
    ),
    RequestOption(
        "max_cost_usd",
        Kind.NUMBER,
        "The largest cost of one call to a model, in US dollars; models that may cost more are not asked.",
        above=0,
        metavar="USD",
        http_note="Estimated from the prompt and `max_tokens`.",
    ),
    RequestOption("single_attempt", Kind.FLAG, "No hedge, no retry."),
    RequestOption(
        "attempt",
        Kind.WHOLE,
        "How often this request failed before; repeats are shed first. Default: 0.",
        least=0,
        on=_SDK_ALONE,
    ),
    RequestOption(
        "idempotency_key",
        Kind.TEXT,
        "A repeat with this key, also after a lost connection, gets the same answer while its gateway keeps it.",
        on=_SDK_ALONE,
    ),
    RequestOption(
        "repair",
        Kind.FLAG,
        "Ask the model once more if its answer does not match the form.",
        sdk_note="A `Patch` replaces the text. Without it, such an answer is an error, except in a batch.",
        http_note="`false`: such an answer is an error ([forms](forms.md#repair)). `true` is refused with `stream`.",
    ),
    RequestOption(
        "cache",
        Kind.WORD,
        "Stored answers: `use` also those to other wordings, `exact` this question's alone, `bypass` none. Default: "
        "the tenant's settings.",
        words=("auto", "use", "exact", "bypass"),
        http_words=("bypass", "exact", "use"),
        alias="CacheUse",
    ),
    RequestOption(
        "min_similarity",
        Kind.NUMBER,
        "The least cosine similarity for a semantic hit, 0.5 to 1; 1 turns semantic hits off.",
        field="cache.min_similarity",
        least=0.5,
        most=1,
        metavar="S",
    ),
    RequestOption(
        "cache_allow",
        Kind.WORDS,
        "Kinds of questions that may be cached.",
        field="cache.allow",
        words=("sampled", "time_bound", "personal"),
        alias="QuestionKind",
        http_note="See [cache](semantic-cache.md#which-questions-may-hit).",
    ),
    RequestOption(
        "cache_category",
        Kind.TEXT,
        "A category of the gateway's settings.",
        field="cache.category",
        metavar="NAME",
    ),
    RequestOption(
        "cache_scope",
        Kind.WORD,
        "Sharing of stored answers. `user`: each end user has its own.",
        field="cache.scope",
        words=("tenant", "user"),
        alias="CacheScope",
        http_note="`tenant`: all of the tenant, unless its setting is `user` "
        "([cache](semantic-cache.md#which-questions-may-hit)).",
    ),
    RequestOption(
        "end_user",
        Kind.TEXTS,
        "The caller's name of the end user.",
        metavar="NAME",
        sdk_note="At most 8 names.",
        http_note="Default: `safety_identifier`, `user` and `metadata.user_id` of the body.",
    ),
    RequestOption(
        "hit_chars_per_s",
        Kind.NUMBER,
        "The speed of a stored answer in a stream, in characters a second; 0: at once.",
        field="cache.hit_chars_per_s",
        least=0,
        most=1_000_000,
    ),
    RequestOption(
        "mesh_tools",
        Kind.OWN,
        "Tools that the gateway calls for this answer. A name alone is called with the question.",
        on=frozenset({Surface.HTTP, Surface.SDK}),  # on the command line: --tool, --mcp, --collection, --agent
        sdk_type="Sequence[MeshTool | str]",
        schema="MeshTools",
        http_note='In the body also objects: `{"name": …, "arguments": {…}}`, `{"name": …, "offered": true}`, '
        '`{"source": …}` ([tools](tools.md)).',
    ),
    RequestOption(
        "tool_steps",
        Kind.WHOLE,
        "The most times that a model may choose mesh tools, at least 1.",
        field="tool_limits.steps",
        least=1,
        http_note="The gateway's settings limit it further.",
    ),
    RequestOption(
        "tool_calls",
        Kind.WHOLE,
        "The most calls of mesh tools by a model, at least 1.",
        field="tool_limits.calls",
        least=1,
        http_note="The gateway's settings limit it further.",
    ),
    RequestOption(
        "findings",
        Kind.FLAG,
        "A stream reports citations and late results as they come.",
        field="",
        on=_HTTP_ALONE,
        http_note="See [below](#citations-and-late-results).",
    ),
    RequestOption(
        "cascade",
        Kind.OWN,
        "Ask a fast model first, and a better one if its answer fails one of these checks.",
        words=("rules", "form", "logprobs", "judge"),
        alias="Verifier",
        schema="CascadeChecks",
        sdk_note="Empty: the gateway's own.",
        http_note="`default`, or some of `rules`, `form`, `logprobs`, `judge` with commas between "
        "([prompts](prompts.md#cascade)).",
    ),
    RequestOption(
        "cascade_at_once",
        Kind.FLAG,
        "With `cascade`: stream the fast model's text before it has passed.",
        field="cascade.at_once",
        sdk_note="If it fails, a `Patch` replaces it.",
        http_note="Refused with `stream`; without it, of no effect.",
    ),
    RequestOption(
        "guard",
        Kind.OWN,
        "Further checks of the guard, and the action for each.",
        metavar="THING=ACTION",
        sdk_type="Mapping[GuardedThing, GuardAction]",
        schema="GuardActions",
        http_note="For example `personal=mask,secrets=refuse` ([guard](guard.md)).",
    ),
    RequestOption(
        "diet",
        Kind.WORD,
        "Compressed messages: `off` none, `system` instructions, `all` the user's too.",
        field="prompt.diet",
        words=("off", "system", "all"),
        alias="Diet",
        http_note="See [prompts](prompts.md).",
    ),
    RequestOption(
        "truncation",
        Kind.WORD,
        "A conversation longer than the model's context: `auto` leaves out its oldest turns, `disabled` is an error.",
        field="prompt.truncation",
        words=("auto", "disabled"),
        alias="Truncation",
        http_note="See [prompts](prompts.md#conversations-beyond-the-context).",
    ),
    RequestOption(
        "whole", Kind.FLAG, "`true`: the same as a truncation of `disabled`.", field="prompt.whole", on=_HTTP_ALONE
    ),
    RequestOption(
        "untranslated",
        Kind.WORD,
        "A field that the model's API lacks: `refuse` is an error; `omit` leaves out one that only tunes the answer.",
        words=("refuse", "omit"),
        alias="Untranslated",
        http_note="See [fields left out](#fields-left-out).",
    ),
    RequestOption(
        "system_prompt",
        Kind.TEXT,
        "The name of a system prompt of the gateway; it comes first.",
        field="prompt.system",
        metavar="NAME",
    ),
)


def options_on(surface: Surface) -> tuple[RequestOption, ...]:
    """The options of a surface, in the order of the table."""
    return tuple(option for option in OPTIONS if surface in option.on)
