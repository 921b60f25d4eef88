"""The state of one client for one type of resource: its names, what was sent, and its answer.

One response of a type is under way at a time: an answer then always belongs to what was sent last, and a client that
takes its time gets the newest state next, never a backlog. A refused version counts as sent, so it is sent again only
when it has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.control.snapshot import ASSIGNMENTS, CLUSTERS, LISTENERS, ROUTES, Resource, version

# A type goes before the types that refer to it.
ORDER = (CLUSTERS, ASSIGNMENTS, LISTENERS, ROUTES)
WILDCARD_TYPES = (CLUSTERS, LISTENERS)  # asking for none of these by name is asking for all of them
ALL = "*"
MAX_TYPES, MAX_NAMES = 16, 10_000  # of one client; more is no client of ours


@dataclass
class Subscription:
    """The subscription to one type on one stream."""

    type_url: str
    names: set[str] = field(default_factory=set)
    wildcard: bool = False
    sent: dict[str, str] = field(default_factory=dict)  # versions, by name
    nonce: str = ""  # of the last response
    under_way: bool = False  # whether the last response has not been answered
    sent_version: str = ""
    acked_version: str = ""
    problem: str = ""  # why the last response was refused
    answered: bool = False  # whether there has been any response

    def wanted(self, there: Mapping[str, Resource]) -> list[Resource]:
        """The known resources that the client asked for."""
        return [each for name, each in there.items() if each.body is not None and (self.wildcard or name in self.names)]

    def changed(self, there: Mapping[str, Resource]) -> list[Resource]:
        """The resources that the client does not have in their present version."""
        return [each for each in self.wanted(there) if self.sent.get(each.name) != each.version]

    def gone(self, there: Mapping[str, Resource]) -> set[str]:
        """The names of resources that the client has, but that no longer exist or that it no longer subscribes to."""
        return {name for name in self.sent if name not in there or not (self.wildcard or name in self.names)}

    def sending(self, nonce: str, resources: Iterable[Resource], there: Mapping[str, Resource]) -> str:
        """Note a response that is about to go out; returns its version, that of all the client asked for."""
        self.sent.update((each.name, each.version) for each in resources)
        self.under_way, self.nonce, self.answered = True, nonce, True
        self.sent_version = version(self.wanted(there))
        return self.sent_version

    def answer(self, nonce: str, refusal: str | None) -> bool:
        """Take the client's word on the response with that nonce; False when it is about an older one, or repeated."""
        if nonce != self.nonce or not self.under_way:
            return False
        if refusal is None:
            self.acked_version = self.sent_version
        self.problem, self.under_way = refusal or "", False
        return True

    def forget(self, names: Iterable[str]) -> None:
        """The client does not have these any more."""
        for name in names:
            self.sent.pop(name, None)
