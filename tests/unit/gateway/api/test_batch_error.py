from __future__ import annotations

from services.gateway.api.batch import batch_error
from services.runtime.errors import Exhausted, InvalidInput

_TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_it_has_the_values_behind_the_message_and_no_delay_where_waiting_does_not_help() -> None:
    told = batch_error(InvalidInput("budget_ms", "at least 1", 0), _TRACE_ID)
    assert (told.code, told.reason, told.trace_id) == ("INVALID_ARGUMENT", "INVALID_INPUT", _TRACE_ID)
    assert dict(told.metadata) == {"field": "budget_ms", "limit": "at least 1", "value": "0"}
    assert not told.HasField("retry_delay")


def test_it_has_the_delay_of_a_refusal() -> None:
    assert batch_error(Exhausted("busy", retry_delay_s=0.25), _TRACE_ID).retry_delay.ToMilliseconds() == 250


def test_it_says_nothing_of_what_a_bug_says() -> None:
    told = batch_error(KeyError("a secret"), _TRACE_ID)
    assert (told.code, told.reason) == ("INTERNAL", "INTERNAL")
    assert "secret" not in str(told)
