"""What every provider's events are read with: JSON whose texts can be sent, counts of tokens that can be billed."""

from __future__ import annotations

import json
import re
from typing import Any

from services.llm.engine import TokenLogprob, Usage
from services.runtime import limits

_HALF = re.compile(r"\\ud[89a-f]", re.IGNORECASE)  # of a pair of surrogates, or one that is alone
# The second half of a pair at the beginning of a text, and the first one at the end of a text; of backslashes before it
# there is an even number.
_SECOND = re.compile(r'(?<!\\)"(\\ud[c-f][0-9a-f]{2})', re.IGNORECASE)
_FIRST = re.compile(r'(?<!\\)(?:\\\\)*+(\\ud[89ab][0-9a-f]{2})"', re.IGNORECASE)
_LEAST_LOGPROB = -9999.0  # as vLLM has it: JSON has neither -inf nor NaN


class Halves:
    """Pairs of surrogates that a provider has cut in two: the first half waits for the event whose text begins with the
    second one. One that stays alone is left out."""

    def __init__(self) -> None:
        self._first = ""  # as JSON has it

    def joined(self, event: str) -> str:
        """The event, with the first half before the second one."""
        if "\\ud" not in event and "\\uD" not in event:  # nearly every event
            return event
        if self._first and (second := _SECOND.search(event)):
            event, self._first = event[: second.start(1)] + self._first + event[second.start(1) :], ""
        if first := _FIRST.search(event):
            event, self._first = event[: first.start(1)] + event[first.end(1) :], first[1]
        return event


def parsed(event: str) -> Any:
    """The event. Half a surrogate pair, which no UTF-8 can carry, is read as U+FFFD. Raises ValueError; RecursionError
    for what is nested too deeply."""
    said = json.loads(event)
    if _HALF.search(event):
        text = json.dumps(said, ensure_ascii=False)
        said = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return said


def to_logprob(entry: dict[str, Any]) -> TokenLogprob:
    """A token of chat completions, or of Responses. Raises KeyError, ValueError or TypeError for another shape."""
    token, encoded = str(entry.get("token") or ""), entry.get("bytes")
    top = tuple(to_logprob(likely) for likely in entry.get("top_logprobs") or ())
    logprob = max(_LEAST_LOGPROB, float(entry["logprob"]))  # in this order, in which NaN is not the greater one
    if not isinstance(encoded, list | None):
        raise TypeError  # of a number, `bytes` makes as many zeros
    return TokenLogprob(token, token.encode() if encoded is None else bytes(encoded), logprob, top)


def usage(prompt: Any, completion: Any, cached: Any = None, reasoning: Any = None, written: Any = None) -> Usage:
    """The usage of an answer, by its provider. `cached` and `written` are tokens of the prompt. Raises as `count`."""
    prompt_tokens = count(prompt)
    cached_tokens = min(count(cached), prompt_tokens)
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=count(completion),
        cached_prompt_tokens=cached_tokens,
        reasoning_tokens=count(reasoning),
        cache_write_tokens=min(count(written), prompt_tokens - cached_tokens),
    )


def count(value: Any) -> int:
    """A provider's count of tokens. An impossible one is 0, as if there were none: then it is estimated.
    Raises ValueError and TypeError for what is no number."""
    try:
        tokens = int(value or 0)
    except OverflowError:
        return 0
    return tokens if 0 <= tokens <= limits.TOKENS else 0
