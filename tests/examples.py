"""How many examples Hypothesis tries."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SHORT_PERCENT = 20


def load_profiles() -> None:
    """`full`, which is in force, and `short` for `--hypothesis-profile=short`, with a fifth of the examples."""
    # The time of an example depends on the machine.
    full = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
    settings.register_profile("full", full)
    settings.register_profile("short", full, max_examples=_SHORT_PERCENT)
    settings.load_profile("full")


def examples(full: int) -> int:
    """`max_examples` of a test in the profile in force: so many in the full one."""
    return full * settings.default.max_examples // 100
