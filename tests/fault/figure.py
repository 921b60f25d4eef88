"""A figure that a fault test measured, and its limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass

SLACK = 10  # separates calls that work from calls that hang
_AS_BARE = 1.2  # times what a bare call is slowed
_STILL_S = 5  # longer than a shared machine stands still
_SECONDS = {" ms": 0.001, " s": 1.0}


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured and its limit; `at_least` turns the limit round. `unit` follows the number."""

    name: str
    value: float
    limit: float
    unit: str = " ms"
    at_least: bool = False
    bare: float | None = None  # the same of a bare call

    @property
    def as_bare(self) -> bool:
        """Whether it is no more than the machine makes of any call."""
        return self.bare is not None and self.value <= _AS_BARE * self.bare

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def load(self) -> float:
        """How much of its limit it takes; above 1 it misses the limit."""
        used, allowed = (self.limit, self.value) if self.at_least else (self.value, self.limit)
        return used / allowed if allowed else used + 1

    def check(self, slack: float = SLACK) -> None:
        """Fail where it is no matter of a slow machine any more."""
        if self.at_least:
            off = self.value < self.limit / slack
        else:
            still = _STILL_S / _SECONDS[self.unit] if self.unit in _SECONDS else 0
            off = self.value > max(self.limit * slack, self.limit + still)
        assert not off, f"{self}: more than {slack} times off"

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        unit = self.unit.lstrip() if self.unit.startswith((" ×", " %")) else self.unit
        bare = "" if self.bare is None else f"; bare {_number(self.bare)}{unit}"
        return f"{self.name} {_number(self.value)}{unit} ({sign}{_number(self.limit)}{bare})"

    def marked(self) -> str:
        """Bold where it misses its limit, in italics where a bare call does as well."""
        mark = "" if self.met else "*" if self.as_bare else "**"
        return f"{mark}{self}{mark}"

    def brief(self) -> str:
        """The figure's name and value."""
        return f"{self.name} {_number(self.value)}{self.unit}"

    def record(self) -> dict[str, object]:
        """For JSON, without what is usual, to three digits."""
        values = {name: _rounded(value) if isinstance(value, float) else value for name, value in asdict(self).items()}
        usual = {"unit": " ms", "at_least": False, "bare": None}
        return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _rounded(value: float) -> float:
    return round(value) if abs(value) >= 100 or value == int(value) else float(f"{value:.3g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
