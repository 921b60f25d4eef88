"""The limit on an answer's tokens that is this service's own, and not its request's or its model's."""

from __future__ import annotations

from dataclasses import dataclass

from services.llm.engine import Model, Request


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """The settings `default_max_tokens` and `max_tokens_cap`; None: not set."""

    default: int | None = None
    cap: int | None = None

    def of(self, request: Request, model: Model, prompt_tokens: int) -> int:
        """The most tokens that the answer may have by these settings; 0 where they do not limit it, because the request
        or the model's own default asks for no more, or the context holds fewer. `prompt_tokens` 0: not known."""
        said = request.sampling.max_tokens or model.default_sampling.max_tokens
        usual = self.default or (None if model.reads(request) else model.usual_max_tokens)
        most = min(filter(None, (said or usual, self.cap)), default=0)
        room = model.context_tokens - prompt_tokens if model.context_tokens and prompt_tokens else most
        return 0 if most == said or most > room else most
