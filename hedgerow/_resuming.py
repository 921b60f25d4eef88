"""An answer that survives its gateway: what to ask another one for, when the first was lost. No I/O here.

With an idempotency key the same is asked again, after the events that have come: the gateway may still have the answer,
or be making it. Else, before the first text the same is asked again; from then on a model goes on from the text there
is, so nothing comes twice and nothing is lost. All of it happens within the one budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hedgerow._errors import HedgerowError
from hedgerow._outgoing import Outgoing
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb

LOST, NO_GATEWAY, NOT_KEPT = "CONNECTION_LOST", "NO_GATEWAY", "ANSWER_NOT_KEPT"
HUNG_UP = "HUNG_UP"  # also by a gateway that stops listening, on connections that it has not accepted yet
_MOST = 2  # gateways that one answer may lose


class Resuming:
    """An answer so far. `clock` gives seconds, monotonic."""

    def __init__(self, out: Outgoing[pb.GenerateRequest], clock: Callable[[], float] = time.monotonic):
        self._out, self._clock, self._began = out, clock, clock()
        self._budget_ms = float(out.request.budget_ms)  # 0: the gateway's default, which it reports
        self._text: list[str] = []
        self._tokens = 0
        self._logprobs: list[chat_pb2.TokenLogprob] = []
        self._carried: tuple[int, Sequence[chat_pb2.TokenLogprob]] = (0, ())  # of the text that a model goes on from
        self._whole = True  # whether `_text` is all there is to know
        self._lost = self._seen = 0
        self._kept = bool(out.request.idempotency_key)  # whether a gateway may have the answer

    @property
    def begun(self) -> bool:
        """Whether the client has something of the answer itself."""
        return bool(self._text) or not self._whole

    @property
    def again(self) -> bool:
        """Whether this is not the first gateway."""
        return self._lost > 0

    def record(self, event: pb.Event) -> None:
        """One event of the answer."""
        kind = event.WhichOneof("kind")
        self._seen += kind != "heartbeat"
        match kind:
            case "delta":
                self._text.append(event.delta.text)
                self._tokens += event.delta.tokens
                self._logprobs += event.delta.logprobs
            case "patch" if event.patch.replaces:  # what has gone counts no more
                self._text, self._tokens, self._logprobs, self._carried = [event.patch.text], 0, [], (0, ())
            case "reasoning" | "tool_call":
                self._whole = False
            case "accepted" if not self._budget_ms:
                self._budget_ms = event.accepted.budget_ms
            case "final":
                self._complete(event.final)

    def after(self, problem: HedgerowError, pause_s: float = 0.0) -> Outgoing[pb.GenerateRequest] | None:
        """The request to another gateway, to be sent after `pause_s`; None where this problem is final."""
        if problem.reason == NOT_KEPT and self.again and self._kept:
            self._kept = False
            return None if self._out.request.single_attempt else self._rest(pause_s)
        lost = problem.reason in (LOST, HUNG_UP) or (problem.reason == NO_GATEWAY and self.again)
        once = self._out.request.single_attempt and not (self._kept and self._seen)
        if not lost or self._lost >= _MOST or once:
            return None
        self._lost += 1
        return self._rest(pause_s)

    def _rest(self, pause_s: float) -> Outgoing[pb.GenerateRequest] | None:
        spent_s = self._clock() - self._began + pause_s
        request = pb.GenerateRequest()
        request.CopyFrom(self._out.request)
        if self._budget_ms:
            request.budget_ms = max(round(self._budget_ms - spent_s * 1000), 0)
        if (self._budget_ms and request.budget_ms < 1) or self._out.timeout_s <= spent_s:
            return None
        if self._kept:
            request.events_seen = self._seen
            return Outgoing(request, self._out.timeout_s - spent_s, self._out.metadata)
        request.idempotency_key = ""
        if not self.begun:
            request.attempt += 1
        elif not self._goes_on(request):
            return None
        return Outgoing(request, self._out.timeout_s - spent_s, self._out.metadata)

    def _goes_on(self, request: pb.GenerateRequest) -> bool:
        """Have a model go on from the text, where it could know how: not in the middle of a thought, or of a form."""
        if not self._whole or request.tools or request.mesh_tools or request.HasField("response_format"):
            return False
        if request.cascade.at_once:  # the text may not have passed its checks yet
            return False
        request.ClearField("cascade")  # the text has passed, or is the better model's
        request.prefix += "".join(self._text)
        self._carried = self._tokens, tuple(self._logprobs)
        if request.sampling.HasField("max_tokens"):
            request.sampling.max_tokens -= self._tokens
        return not request.sampling.HasField("max_tokens") or request.sampling.max_tokens > 0

    def _complete(self, final: pb.Final) -> None:
        """Count the text of earlier gateways as a part of the answer: for the last one it was a part of the prompt."""
        (tokens, logprobs), used = self._carried, final.usage
        used.completion_tokens += tokens
        used.prompt_tokens = max(0, used.prompt_tokens - tokens)
        used.cached_prompt_tokens = min(used.cached_prompt_tokens, used.prompt_tokens)
        own = tuple(final.logprobs)
        del final.logprobs[:]
        final.logprobs.extend((*logprobs, *own))
