"""What the gateway reads of callers and of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.gateway.guard.denied import Denied
from services.gateway.guard.screen import Screen
from services.gateway.prompt import diet, protected
from services.runtime.security.credentials import SECRETS
from services.runtime.security.personal_data import PERSONAL
from tests.unit.linear.reader import Reader, whole

_DENIED = Denied(("project titan", "worse"), (r"\bx[a-z ]{1,100}y\b",), 1_000)


def _screened(pieces: Sequence[str]) -> None:
    screen = Screen((*SECRETS, *PERSONAL), _DENIED)
    for piece in pieces:
        screen.feed(piece)
    screen.close()


WHOLE: Mapping[str, Reader] = {
    "diet": whole(diet.diet),
    "protected": whole(lambda text: list(protected.pieces(text))),
}
STREAMED: Mapping[str, Reader] = {
    "screen": _screened,
}
