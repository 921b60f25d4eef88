"""The policies between an answer and a model, in their order. Outermost first:

    Shared              readers of equal questions share one generation, which ends with the last of them
    Resumable           an answer that breaks in mid-stream goes on elsewhere, from the text that is there
    StartWait           every model that could answer is starting or has lost its connection: wait for one
    Fallback            the next model, where one is broken, throttled or late with its first text
    Retrying            another call where the first call failed, unless there were two: a hedge is a retry in advance
    Limiting            a slot at the model's limiter: wait for it a little, or be shed; no wait without a replica
    Hedging             a second call where the first text is late; a silent replica does not get all of the time
    LoadBalancing       the best replica among those that are healthy, for this tenant
    Send                the call, until the deadline

The limit stands outside of the hedge, because a request that waits for its slot has not begun: its first text is late
for want of capacity, and a second call would only make that worse. A hedge takes only a spare slot.

Only beginnings pass through the layers: each returns when the first text is there, and `Resumable` has the call forward
its messages straight to the readers. A token pays for no layer.
"""

from __future__ import annotations

from services.gateway.generation.call import Observe
from services.gateway.generation.fallback import Fallback
from services.gateway.generation.hedging import Hedging
from services.gateway.generation.job import Generate, Job
from services.gateway.generation.limiting import Limiting
from services.gateway.generation.retrying import Resumable, Retrying
from services.gateway.generation.sending import LoadBalancing, Send
from services.gateway.generation.shared import Shared
from services.gateway.generation.start_wait import StartWait
from services.gateway.upstream.fleet import Fleet


def make_stack(fleet: Fleet, observe: Observe) -> Shared:
    """The complete stack. `observe` gets the outcome of each call."""
    call = LoadBalancing(fleet, Send(observe, fleet.stall_s))
    one: Generate[Job] = Retrying(fleet, Limiting(fleet, Hedging(fleet, call)))
    begin = StartWait(fleet, Fallback(one))
    return Shared(Resumable(fleet, begin, call))
