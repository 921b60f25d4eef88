"""The options of a request, beyond its messages and its sampling.

Each is declared once, in `table.py`. The SDK's keywords, the HTTP API's object `hedgerow` and its `x-hedgerow-*`
headers, the flags of the command line, the limits that the gateway checks, and their documents follow from there.
CONTRIBUTING.md has the steps of a new option.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto


class Kind(Enum):
    """The type of an option's value."""

    WHOLE = auto()  # a whole number of 32 bits
    NUMBER = auto()
    FLAG = auto()
    TEXT = auto()
    TEXTS = auto()  # the SDK takes a single one, too
    WORD = auto()  # one of `words`
    WORDS = auto()  # some of `words`
    OWN = auto()  # of a type of its own: each surface converts it in a function of its own


class Surface(Enum):
    """Interfaces on which a caller gives options. A caller by gRPC sets the field."""

    HTTP = auto()
    SDK = auto()
    CLI = auto()


EVERYWHERE = frozenset(Surface)


@dataclass(frozen=True, slots=True)
class RequestOption:
    """One option, with the same name on every surface.

    `field` is its path in `hedgerow.gateway.v1.GenerateRequest`; empty if only the HTTP API uses it. A word stands for
    the value of the field's enum that ends with it; if the field is a bool, the second word is true. `least` and `most`
    are within the limits, `above` is not.

    `help` documents it on every surface, in a sentence or two. `sdk_note` and `http_note` follow it in docs/sdk.md and
    docs/http.md.
    """

    name: str
    kind: Kind
    help: str
    _: KW_ONLY
    field: str | None = None  # None: of the same name
    words: tuple[str, ...] = ()
    http_words: tuple[str, ...] = ()  # if HTTP has other words
    least: float | None = None
    above: float | None = None
    most: float | None = None
    on: frozenset[Surface] = EVERYWHERE
    metavar: str | None = None  # on the command line
    alias: str = ""  # the type of the words, if the SDK exports one
    sdk_type: str = ""  # the type of an option of kind `OWN`
    schema: str = ""  # the component of docs/openapi.yaml for an option of kind `OWN`
    sdk_note: str = ""
    http_note: str = ""

    @property
    def place(self) -> str:
        """The path of its field in the request."""
        return self.name if self.field is None else self.field

    @property
    def header(self) -> str:
        """Its HTTP header."""
        return f"x-hedgerow-{self.name.replace('_', '-')}"

    @property
    def limit(self) -> str:
        """The limits of a number, as errors name them; empty without any."""
        if self.above is not None:
            return f"above {self.above}"
        if self.most is not None:
            return f"{self.least} to {self.most}"
        return "" if self.least is None else f"at least {self.least}"

    def admits(self, value: float) -> bool:
        """Whether a number is within the limits. Infinity and NaN are not."""
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        return math.isfinite(value) and low <= value <= high and (self.above is None or value > self.above)
