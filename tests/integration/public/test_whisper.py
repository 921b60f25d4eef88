"""A public Whisper on natural speech: how many words and sentences are right, and which language it is.

No exact texts: another build of the same model may hear a word differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from bench.speech import Spoken, joined
from launcher import catalog
from services.audio.engine import Task
from services.audio.listener import ListenerSettings
from services.audio.sentences import TranscriptSentences
from services.audio.speech import Audio, Segment, Word
from services.audio.whisper import Whisper, open_whisper
from services.runtime.process.cores import usable_cores
from tests.spoken import heard_live, read_aloud

pytestmark = pytest.mark.timeout(300)

SECONDS = 30.0
WRONG, WRONG_LIVE = 0.06, 0.08  # of the words, at most; 1 to 3% were measured
_AS_IT_IS = Task()
GERMAN = "Guten Tag, ich möchte gerne zwei Fahrkarten nach Berlin kaufen."


@pytest.fixture(scope="module")
def whisper(pulled: None) -> Whisper:
    return open_whisper(str(catalog.path("whisper-base")), "cpu", "int8", usable_cores())


@pytest.fixture(scope="module")
def spoken() -> Spoken:
    return joined(SECONDS)


def segments(whisper: Whisper, recording: Audio, task: Task = _AS_IT_IS) -> list[Segment]:
    sentences, found = TranscriptSentences(), []
    for step in whisper.transcribe(recording, task, lambda: 4):
        found += sentences.push(step.words)
    return [*found, *sentences.end()]


def said(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def test_a_recording_has_few_wrong_words_and_a_segment_for_each_sentence(whisper: Whisper, spoken: Spoken) -> None:
    found = segments(whisper, spoken.samples)
    assert spoken.wrong(" ".join(said(each.words) for each in found)) <= WRONG
    ended = sum(each.words[-1].text.endswith((".", "?", "!")) for each in found)
    assert ended == pytest.approx(len(spoken.sentences), rel=0.1)
    assert all(one.end_s <= other.start_s + 0.5 for one, other in pairwise(found))


async def test_live_speech_has_few_wrong_words(whisper: Whisper, spoken: Spoken) -> None:
    heard = await heard_live(whisper, spoken.samples, "", ListenerSettings(step_ms=500))
    assert spoken.wrong(said(heard)) <= WRONG_LIVE


def test_german_is_detected_and_transcribed_as_german(whisper: Whisper) -> None:
    audio = read_aloud(GERMAN, "de")
    found = whisper.transcribe_utterance(audio, "")
    assert found.language == "de"
    assert {step.language for step in whisper.transcribe(audio, _AS_IT_IS, lambda: 4) if step.words} == {"de"}
    assert "Guten Tag" in said(found.words)


def test_german_is_translated_into_english(whisper: Whisper) -> None:
    steps = whisper.transcribe(read_aloud(GERMAN, "de"), Task(translate=True), lambda: 4)
    words = [word for step in steps for word in step.words]
    assert {"Good", "day", "Berlin"} <= {word.text.strip(".,") for word in words}
    assert all(one.start_s <= other.start_s for one, other in pairwise(words))


def test_a_language_that_is_named_is_not_detected(whisper: Whisper) -> None:
    assert whisper.transcribe_utterance(read_aloud(GERMAN, "de"), "en").language == "en"


def test_silence_has_no_words_and_no_language(whisper: Whisper) -> None:
    steps = list(whisper.transcribe(joined(1).samples[:0], _AS_IT_IS, lambda: 4))
    assert not any(step.words or step.language for step in steps)


def test_a_prompt_says_how_a_name_is_spelled(whisper: Whisper) -> None:
    recording = read_aloud("I would like to speak to Mister Maier, please.", "en")
    for name in ("Meyer", "Mayer"):
        found = segments(
            whisper, recording, Task("en", prompt=f"A conversation with Mr. {name} about {name}'s garden.")
        )
        assert name in " ".join(said(each.words) for each in found)
