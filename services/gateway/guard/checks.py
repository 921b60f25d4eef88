"""The checks of one request and its answer: those of the tenant, and those that the request adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.guard import injection
from services.gateway.guard.denied import Denied
from services.gateway.settings.guard import GuardSettings
from services.runtime.security import incremental_search
from services.runtime.security.private_data import Kind, Rule

_ASKED: Mapping[int, str] = {pb.GUARD_ACTION_MASK: "mask", pb.GUARD_ACTION_REFUSE: "refuse"}
_ASKABLE = "injection", "secrets", "personal", "answer_secrets", "answer_personal"
_STRICTER = ("off", "note", "mask", "refuse", "end")  # from the mildest on
_Asked = tuple[int, int, int, int, int]
_NOTHING_ASKED: _Asked = (0, 0, 0, 0, 0)
_EVERYTHING_ASKED: _Asked = (pb.GUARD_ACTION_REFUSE, *4 * (pb.GUARD_ACTION_MASK,))
_MOST_PREPARED = 256  # settings; denied patterns of so many are kept


@dataclass(frozen=True, slots=True)
class Checks:
    """The settings, the request's share included, and the rules that come of them: for the request, those of them that
    refuse it, and for the answer, with the kinds that end it."""

    settings: GuardSettings
    masks: Sequence[Rule]
    refuses: frozenset[Kind]
    answers: Sequence[Rule]
    ends: frozenset[Kind]
    denied: Denied | None

    @property
    def asks(self) -> bool:
        """Whether anything is looked for in the request."""
        return bool(self.masks) or self.settings.injection != "off"

    @property
    def screens(self) -> bool:
        """Whether anything is looked for in the answer."""
        return bool(self.answers or self.denied)


NOTHING = Checks(GuardSettings(), masks=(), refuses=frozenset(), answers=(), ends=frozenset(), denied=None)


def guard_checks(settings: GuardSettings, request: pb.GenerateRequest) -> Checks | None:
    """The checks of a request; None without any."""
    if not request.HasField("guard"):
        return None if settings.off else _made(settings, _NOTHING_ASKED)
    asked = request.guard
    actions = asked.injection, asked.secrets, asked.personal, asked.answer_secrets, asked.answer_personal
    made = _made(settings, actions)
    return made if made.asks or made.screens else None


def everything(settings: GuardSettings) -> Checks:
    """All checks of a guard, also those that these settings turn off, with their phrases, patterns and score."""
    return _made(settings, _EVERYTHING_ASKED)


def prepare(guards: Iterable[GuardSettings]) -> None:
    """Compile the rules of these settings, and those that a request may add: 30 ms that no request should wait for, and
    up to 1 ms for each denied pattern. For the first 256 different settings."""
    for rule in _rules("mask", "mask"):
        incremental_search.reach(rule.pattern)
    injection.model()
    for settings in islice(dict.fromkeys(guards), _MOST_PREPARED):
        if not settings.off:
            _made(settings, _NOTHING_ASKED)


@lru_cache(maxsize=1_000)
def _made(settings: GuardSettings, asked: _Asked) -> Checks:
    wanted = zip(_ASKABLE, asked, strict=True)
    settings = settings.model_copy(update={name: _stricter(name, getattr(settings, name), act) for name, act in wanted})
    phrases, patterns = settings.denied_phrases, settings.denied_patterns
    ends = _kinds(settings.answer_secrets == "end", settings.answer_personal == "end", settings.answer_denied == "end")
    return Checks(
        settings,
        _rules(settings.secrets, settings.personal),
        _kinds(settings.secrets == "refuse", settings.personal == "refuse"),
        _rules(settings.answer_secrets, settings.answer_personal),
        ends,
        Denied(phrases, patterns, settings.pattern_ms) if phrases or patterns else None,
    )


def _stricter(name: str, own: str, action: int) -> str:
    """The stricter of a setting and what a request asks for."""
    asked = _ASKED.get(action, "off")
    if name.startswith("answer_") and asked == "refuse":
        asked = "end"
    return own if _STRICTER.index(own) >= _STRICTER.index(asked) else asked


def _rules(secrets: str, personal: str) -> Sequence[Rule]:
    if secrets == personal == "off":
        return ()
    from services.runtime.security.credentials import SECRETS  # 8 ms of patterns
    from services.runtime.security.personal_data import PERSONAL

    return (*(SECRETS if secrets != "off" else ()), *(PERSONAL if personal != "off" else ()))


def _kinds(secret: bool, personal: bool, denied: bool = False) -> frozenset[Kind]:
    wanted: dict[Kind, bool] = {"secret": secret, "personal": personal, "denied": denied}
    return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)
