"""Two models, of which the smaller is asked first."""

from __future__ import annotations

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text

STOP, LENGTH = chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH


def cascading(*quick: object, better: ScriptedLlm | None = None, cache: ScriptedCache | None = None) -> Scene:
    """Two models, of which `quick` plays that script."""
    better = better or ScriptedLlm(0.1, text("It is "), finish("Paris."))
    return Scene(cache, ScriptedRoutes(("quick", "better")), quick=ScriptedLlm(*quick), better=better)


def made(final: pb.Final) -> list[tuple[str, str]]:
    return [(each.policy, each.action) for each in final.decisions]


def said_of(events: list[pb.Event]) -> list[str]:
    """The text that a client shows after each event that changes it."""
    shown = [""]
    for event in events:
        if event.HasField("delta"):
            shown.append(shown[-1] + event.delta.text)
        elif event.patch.replaces:
            shown.append(event.patch.text)
    return shown
