"""The process that tries constraints, with llguidance and a vocabulary of bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.chat.v1.chat_pb2 import Choice, ResponseFormat
from services.gateway.admission import constraint as gateway
from services.gateway.settings.response_format import ConstraintSettings
from services.llm.engine import Constraint
from services.llm.errors import EngineDown
from services.llm.vllm.constraints import Trial
from services.llm.vllm.grammar_sandbox import Terms
from services.runtime.errors import InvalidInput
from tests.hostile import COSTLY
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)
ARITHMETIC = 'start: term ("+" term)*\nterm: NUMBER | "(" start ")"\nNUMBER: /[0-9]+/\n'
TERMS = Terms(cpu_s=0.1)
# llguidance 1.7.6 overruns its stack over it, and with it ends the process.
_DEADLY = '{"type": "integer", "minimum": -9223372036854775296, "maximum": -9223372036854775296}'


def choice(*values: str) -> ResponseFormat:
    return ResponseFormat(choice=Choice(values=values))


@pytest_asyncio.fixture
async def trial() -> AsyncIterator[Trial]:
    running = Trial(lambda: TERMS)
    yield running
    last = running._process
    await running.close()
    assert last is None or not psutil.pid_exists(last.pid)


def process(trial: Trial) -> psutil.Process:
    """The one that tries."""
    assert trial._process is not None
    return psutil.Process(trial._process.pid)


async def tried(trial: Trial, wanted: ResponseFormat) -> str:
    """Why a response format is refused, or nothing."""
    kind = wanted.WhichOneof("constraint") or "json_object"
    value = json.dumps(list(wanted.choice.values)) if kind == "choice" else getattr(wanted, kind)
    return (await trial.of(Constraint(kind, value if isinstance(value, str) else ""))).refused  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (ResponseFormat(regex="[0-9]{3}"), ""),
        (ResponseFormat(json_object=True), ""),
        (ResponseFormat(json_schema='{"type": "object", "properties": {"a": {"type": "string"}}}'), ""),
        (ResponseFormat(regex="("), "unclosed group"),
        (ResponseFormat(json_schema='{"type": "x"}'), "Invalid type: x"),
        (ResponseFormat(json_schema='{"type": "array", "uniqueItems": true}'), "uniqueItems"),
        (ResponseFormat(json_schema='{"type": "integer", "multipleOf": 1000003}'), "more than 100 ms of work"),
        (ResponseFormat(json_schema='{"type": "array", "items": {}, "maxItems": 5000000}'), "more than 100 ms of work"),
        (ResponseFormat(regex=".?" * 300), "lexer"),
        (ResponseFormat(grammar='start: "a" | "b"\n'), ""),
        (ResponseFormat(grammar='root ::= "a" root | "b"\n'), ""),  # GBNF
        (ResponseFormat(grammar=ARITHMETIC), ""),
        (ResponseFormat(grammar="start: nothing\n"), "nothing"),
        (ResponseFormat(grammar="(" * 8_000), "Failed to convert"),
        (ResponseFormat(grammar='start: %json {"multipleOf": 1000003}\n'), "more than 100 ms of work"),
        (ResponseFormat(grammar="start: " + " | ".join(f'"{number}"' for number in range(1_000, 1_600))), "max is 500"),
        (choice("a", "ab", "😀", '"\\\n'), ""),
        (choice(*map(str, range(1_000))), ""),
        (ResponseFormat(json_schema=_DEADLY), "the grammar cannot be made"),
    ],
)
async def test_a_constraint_is_tried(trial: Trial, wanted: ResponseFormat, why: str) -> None:
    said = await tried(trial, wanted)
    assert why in said
    assert bool(why) == bool(said)
    assert await tried(trial, ResponseFormat(regex="a+")) == ""  # it goes on
    assert process(trial).rlimit(psutil.RLIMIT_CORE) == (0, 0), "a fork that breaks would leave a file of its memory"


@pytest.mark.parametrize("letter", ["(", "é", "🦔"])
async def test_a_very_long_regex_is_refused_without_a_failure_of_the_trial(trial: Trial, letter: str) -> None:
    assert await tried(trial, ResponseFormat(regex="(" + letter * 29_000))
    before = process(trial).pid
    assert await tried(trial, ResponseFormat(regex="("))
    assert process(trial).pid == before


async def test_a_trial_that_dies_is_started_again(trial: Trial) -> None:
    await tried(trial, ResponseFormat(regex="a"))
    process(trial).kill()
    with pytest.raises(EngineDown):
        await tried(trial, ResponseFormat(regex="b"))
    assert await tried(trial, ResponseFormat(regex="b")) == ""


async def test_the_trial_ends_with_the_process_that_started_it() -> None:
    running = Trial(lambda: TERMS)
    await tried(running, ResponseFormat(regex="a"))
    started = process(running)
    running._writer.close()  # as the kernel does it

    async def gone() -> bool:
        return started.status() == psutil.STATUS_ZOMBIE

    await until(gone)
    await running.close()


async def test_the_most_expensive_admitted_schemas_take_little_time_or_are_refused(trial: Trial) -> None:
    limits = ConstraintSettings()
    for kind in COSTLY:
        gateway.check(wanted := kind(7), limits)
        await tried(trial, ResponseFormat(regex="a"))
        before = _cpu_s(trial)
        await tried(trial, wanted)
        assert _cpu_s(trial) - before < 3 * TERMS.cpu_s  # once to make, once to follow, and the fork


def _cpu_s(trial: Trial) -> float:
    """Processor time of its forks."""
    times = process(trial).cpu_times()
    return float(times.children_user + times.children_system)


_SCHEMAS = st.deferred(
    lambda: st.one_of(
        st.just({}),
        st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "x"])}),
        st.builds(lambda low, high: {"type": "string", "minLength": low, "maxLength": high}, _COUNTS, _COUNTS),
        st.builds(lambda text: {"type": "string", "pattern": text}, _PATTERNS),
        st.builds(lambda of, most: {"type": "array", "items": of, "maxItems": most}, _SCHEMAS, _COUNTS),
        st.builds(lambda of: {"type": "object", "properties": of}, st.dictionaries(st.text(max_size=5), _SCHEMAS)),
        st.builds(lambda of: {"anyOf": of}, st.lists(_SCHEMAS, max_size=4)),
        st.builds(lambda of: {"allOf": of}, st.lists(_SCHEMAS, max_size=3)),
        st.builds(lambda of: {"enum": of}, st.lists(st.text(max_size=5) | st.integers() | st.none(), max_size=4)),
        st.builds(lambda low, high: {"type": "integer", "minimum": low, "maximum": high}, st.integers(), st.integers()),
        st.builds(lambda of: {"type": "number", "multipleOf": of}, st.integers() | st.floats(allow_nan=False)),
        st.builds(lambda at: {"$ref": f"#/{at}"}, st.sampled_from(["", "properties/a", "$defs/a", "x"])),
        st.builds(lambda data: {"const": data}, st.text(max_size=9) | st.lists(st.integers(), max_size=3)),
        st.builds(lambda of: {"type": "string", "format": of}, st.sampled_from(["date", "email", "uuid", "x"])),
    )
)
_COUNTS = st.integers(-1, 12_000)
_PATTERNS = st.text(alphabet=r"ab.\dws[]()*+?{}|^$,123", max_size=24)


async def test_a_start_that_is_cancelled_leaves_no_process(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    connecting, before = asyncio.Event(), {each.pid for each in psutil.Process().children()}

    async def connect(**_: object) -> None:
        connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", connect)
    asked = asyncio.create_task(trial.of(Constraint("regex", "a")))
    await connecting.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert {each.pid for each in psutil.Process().children()} == before


_FORMATS = st.one_of(
    _SCHEMAS.map(lambda schema: ResponseFormat(json_schema=json.dumps(schema))),
    _PATTERNS.map(lambda pattern: ResponseFormat(regex=pattern)),
)


def test_the_trial_gives_a_result_for_every_admitted_schema() -> None:
    trial = Trial(lambda: TERMS)
    with asyncio.Runner() as runner:

        @settings(max_examples=200, deadline=None)
        @given(wanted=_FORMATS)
        def said_of(wanted: ResponseFormat) -> None:
            try:
                gateway.check(wanted, ConstraintSettings())
            except InvalidInput:
                return
            assert isinstance(runner.run(tried(trial, wanted)), str)

        said_of()
        runner.run(trial.close())
