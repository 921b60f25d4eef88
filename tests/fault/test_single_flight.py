"""A caller that joins a generation in the very turn of the event loop in which its last reader leaves.

No process is between them: the moment cannot be met from outside. The gateway's own answers are asked for, of a
scripted model.
"""

from __future__ import annotations

import pytest

from hedgerow.chat.v1 import chat_pb2
from services.runtime.errors import ServiceError
from tests.fault.report import Report
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, finish, text

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def test_a_reader_that_joins_as_the_last_one_leaves_gets_an_answer_or_an_error(report: Report, full_size: bool):
    times, texts = 10_000 if full_size else 300, set[str]()
    with report.case(34, "joins a generation in the turn in which its last reader leaves") as row:
        for _ in range(times):
            scene = Scene(small=ScriptedLlm(scripts=[[text("Pa"), None], [text("Pa"), finish("ris.")]]))
            first = sent_by(scene.answer().give)
            await anext(first)
            await first.aclose()
            try:
                final = await scene.final()
            except ServiceError:
                row.tally(failed=1)
                continue
            row.tally(ok=1)
            texts.add(final.text)
            assert final.finish_reason == chat_pb2.FINISH_REASON_STOP
        assert texts <= {"Paris."}
        assert row.ok + row.failed == times
