"""One token from one replica, so that it has read a prompt.

It goes by a batch's right, behind all batches, and beside everything that is learned from answers: percentiles, hedges,
breakers and limits are about what users ask, and one token of a prompt that was just read would make all of them too
quick. So it does not go through the stack of policies, whose calls tell all of these. It is nobody's: no quota counts
it, and its text goes nowhere. The metrics of tokens and costs do count it.
"""

from __future__ import annotations

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.policies.priority import score
from services.gateway.policies.ticket import Ticket
from services.gateway.upstream import prefix, spending
from services.gateway.upstream.completion import Completion
from services.gateway.upstream.fleet import Pool, Replica
from services.runtime.deadline import Clock, Deadline
from services.runtime.errors import Unavailable
from services.runtime.routing import Model

_QUESTION = "Hello."
_NOBODY, _WEIGHT = "", 0.01  # whose it is at a limiter: a hundred items of any batch have their turn before it
_RANK = score(premium=False, realtime=False, attempt=0, batch=True)


def request(text: str, salt: str) -> llm_pb2.GenerateRequest:
    """What has a model read `text`, a system prompt, for the tenants with `salt`; without a text, a question alone."""
    question = chat_pb2.Message(role=chat_pb2.ROLE_USER, content=_QUESTION)
    system = [chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=text)] if text else []
    sampling = chat_pb2.Sampling(max_tokens=1, temperature=0)
    return llm_pb2.GenerateRequest(messages=[*system, question], sampling=sampling, cache_salt=salt)


async def touch(
    pool: Pool, replica: Replica, asked: llm_pb2.GenerateRequest, within_s: float, clock: Clock, model: Model | None
) -> float:
    """Have `replica` answer `asked` within so many seconds, the wait for a place included; what that costs at the
    prices of `model` is counted. Returns the seconds to its first message. Raises `ServiceError`; `Shed` where there
    was no place to spare."""
    if not replica.breaker.would_admit():
        raise replica.breaker.refusal()
    deadline = Deadline.after(within_s, clock)
    slot = await pool.limiter.enter(Ticket(_RANK, _NOBODY, _WEIGHT, deadline, placed=lambda: None))
    replica.in_flight += 1
    try:
        if replica not in pool.replicas:  # it has left while we waited
            raise Unavailable(f"{replica.name}: is not in service any more")
        began = clock()
        completion = replica.llm.generate(asked, deadline.remaining(), ())
        try:
            await completion.read()
            first_s = clock() - began
            spending.count(pool.model, model, await _rest(completion))
        finally:
            completion.cancel()
    finally:
        replica.in_flight -= 1
        slot.release(unused=True)
    if pool.reads_prompts:
        replica.prefixes.sent(prefix.of_request(asked))
    return first_s


async def _rest(completion: Completion) -> llm_pb2.Finish:
    while completion.finish is None:
        await completion.read()
    await completion.ended()
    return completion.finish
