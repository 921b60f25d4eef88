"""Pictures and speech on the command line. The services are scripted."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2
from launcher.processes import free_port
from tests.integration.command import launch, run
from tests.integration.scripted import Heard, Hold, Refusal
from tests.integration.scripted_audio import ScriptedAudio, live, recording, segment, serve_audio, word
from tests.integration.scripted_gateway import ScriptedGateway, answer, serve_script, spoken, transcript, turn
from tests.integration.scripted_vision import TIMING, ScriptedVision, labels, serve_vision

QUESTION = "What is the capital of France?"


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with serve_script() as served:
        yield served


@pytest.fixture
async def vision() -> AsyncIterator[ScriptedVision]:
    async with serve_vision() as served:
        yield served


@pytest.fixture
async def audio() -> AsyncIterator[ScriptedAudio]:
    async with serve_audio() as served:
        yield served


@pytest.fixture
def question(tmp_path: Path) -> str:
    """A quarter of a second at 8 kHz, in stereo."""
    path = tmp_path / "question.wav"
    soundfile.write(path, np.full((2_000, 2), (0.5, 0.0)), 8_000, subtype="PCM_16")
    return str(path)


async def test_asking_with_a_picture_and_a_recording_prints_labels_and_transcript(
    gateway: ScriptedGateway, question: str, tmp_path: Path
) -> None:
    (tmp_path / "shape.png").write_bytes(b"png")
    (tmp_path / "other.png").write_bytes(b"other")
    seen = pb.Sights(pictures=[labels(("red circle", 0.991)), labels(("blue square", 0.75), ("blue circle", 0.25))])
    gateway.script = answer("A circle.", transcript="Which shape?", sights=seen)
    images = ["--image", str(tmp_path / "shape.png"), "--image", str(tmp_path / "other.png")]
    code, out, err = await run("ask", *images, "--audio", question, "--gateway", gateway.target)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "A circle."
    at = lines.index("transcript  Which shape?")
    assert lines[at + 1 : at + 3] == ["labels  red circle 0.99", "labels  blue square 0.75  blue circle 0.25"]
    [request] = gateway.requests
    assert [image.data for image in request.images] == [b"png", b"other"]
    assert request.audio.data.startswith(b"RIFF")
    assert not request.messages


async def test_asking_with_media_as_json_is_one_object(gateway: ScriptedGateway, question: str) -> None:
    seen = pb.Sights(pictures=[labels(("red circle", 0.75), indices=[7])])
    gateway.script = answer("Yes.", transcript="Which shape?", sights=seen)
    code, out, _ = await run("ask", "Really?", "--audio", question, "--json", "--gateway", gateway.target)
    said = json.loads(out)
    assert (code, said["transcript"]) == (0, "Which shape?")
    assert said["sights"] == [[{"name": "red circle", "score": 0.75, "index": 7}]]
    assert gateway.requests[0].messages[0].content == "Really?"


async def test_a_played_question_shows_its_words_and_then_the_answer(gateway: ScriptedGateway, question: str) -> None:
    first = spoken(transcript=transcript("What is the", 2))
    gateway.script = [Heard(2), first, Heard(), *turn(0, QUESTION, "It is ", "Paris.")]
    code, out, err = await run(
        "ask", "--audio", question, "--stream", "--pause-ms", "300", "--tier", "fast", "--gateway", gateway.target
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:4] == [
        "partial  What is [the]",
        "partial  What is the capital of [Fran]",
        f"transcript  {QUESTION}",
        "It is Paris.",
    ]
    assert any(line.startswith("llm ") and "█" in line for line in lines)
    assert lines[-1].startswith("trace ")
    opening, *blocks = gateway.requests
    assert (opening.options.format.sample_rate_hz, opening.options.format.channels) == (8_000, 1)
    assert (opening.options.pause_ms, opening.options.request.tier) == (300, pb.TIER_FAST)
    samples = np.frombuffer(b"".join(block.audio for block in blocks), "<i2")
    assert samples.tolist() == [8_192] * 2_000  # both channels' mean
    assert len(blocks) == 3


async def test_a_played_question_as_json_is_one_object_for_each_event(gateway: ScriptedGateway, question: str) -> None:
    problem = pb.BatchError(code="RESOURCE_EXHAUSTED", reason="SHED", message="too busy")
    gateway.script = [Heard(), *turn(0, QUESTION, "Paris."), spoken(1, error=problem)]
    code, out, err = await run("ask", "--audio", question, "--stream", "--json", "--gateway", gateway.target)
    assert (code, err) == (1, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == [
        "speech_started", "transcript", "transcript", "accepted", "stage_report", "text_delta", "final", "turn_failed",
    ]  # fmt: skip
    assert events[2] == {"turn": 0, "event": "transcript", "text": QUESTION, "confirmed_words": 6, "final": True}
    assert (events[6]["text"], events[6]["finish_reason"]) == ("Paris.", "stop")
    assert events[7]["turn"] == 1
    assert (events[7]["error"]["reason"], events[7]["error"]["message"]) == ("SHED", "too busy")


async def test_an_answer_that_is_spoken_over_is_marked(gateway: ScriptedGateway, question: str) -> None:
    cut = turn(0, QUESTION, "It is ")[:-1]
    gateway.script = [Heard(), *cut, spoken(interrupted=pb.Interrupted(text="It is ")), *turn(1, "Wait.", "Yes.")]
    code, out, _ = await run("ask", "--audio", question, "--stream", "--no-waterfall", "--gateway", gateway.target)
    lines = out.splitlines()
    assert code == 0
    assert lines[lines.index("It is ") + 1] == "(interrupted)"
    assert lines[-2:] == ["transcript  Wait.", "Yes."]


async def test_a_recording_without_speech_fails(gateway: ScriptedGateway, question: str) -> None:
    gateway.script = [Heard()]
    code, out, err = await run("ask", "--audio", question, "--stream", "--gateway", gateway.target)
    assert (code, out) == (1, "")
    assert err == f"hedgerow: audio: speech is needed, got none in {question}\n"


@pytest.mark.parametrize("command", ["ask --audio FILE --stream", "transcribe FILE --stream"])
async def test_a_file_that_cannot_be_played_is_named(command: str, tmp_path: Path) -> None:
    text, fast = tmp_path / "text.wav", tmp_path / "fast.wav"
    text.write_text("not audio")
    soundfile.write(fast, np.zeros(10), 96_000)
    for path, problem in (
        ("none.wav", "a file that can be read, got none.wav (No such file or directory)"),
        (str(text), f"WAV, FLAC, MP3 or Ogg, got {text} ("),
        (str(fast), f"a sample rate of 8000 to 48000 Hz to play it, got 96000 ({fast})"),
    ):
        code, out, err = await run(*(path if part == "FILE" else part for part in command.split()))
        assert (code, out) == (1, "")
        assert err.startswith(f"hedgerow: audio: {problem}")


async def test_ctrl_c_while_a_question_is_played_ends_the_conversation(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    long = tmp_path / "long.flac"
    soundfile.write(long, np.zeros(8_000 * 60), 8_000)
    gateway.script = [Heard(3), *turn(0, QUESTION, "It is ")[:-1], Hold()]
    process = await launch("ask", "--audio", str(long), "--stream", "--gateway", gateway.target)
    assert process.stdout is not None
    await process.stdout.readuntil(b"It is ")
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(gateway.cancelled.wait(), 20)
    _, err = await process.communicate()
    assert (process.returncode, b"Traceback" in err) == (130, False), err.decode()[-3000:]


async def test_a_recording_is_written_down_with_times(audio: ScriptedAudio, question: str) -> None:
    audio.script = recording(segment(0, "Which city?", word("Which", 0.25)), segment(1, "And why?"))
    code, out, err = await run("transcribe", question, "--words", "--language", "en", "--audio-service", audio.target)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "   0.00    1.50  Which city?",
        "   0.25    0.50    Which  0.75",
        "   2.00    3.50  And why?",
        "4.0 s of audio · 3.0 s of speech · 0.5 s of work · real-time factor 0.12 · demo-whisper · en",
    ]
    assert audio.requests[0].options.language == "en"
    assert audio.requests[0].options.words


async def test_a_transcript_as_json_is_one_object(audio: ScriptedAudio, question: str) -> None:
    audio.script = recording(segment(0, "Which city?"))
    code, out, err = await run("transcribe", question, "--json", HEDGEROW_TARGET_AUDIO=audio.target)
    said = json.loads(out)
    assert (code, err, said["text"], said["audio_s"]) == (0, "", "Which city?", 4)
    (spoken,) = said["segments"]
    assert spoken == {"index": 0, "start_s": 0, "end_s": 1.5, "text": "Which city?", "words": [], "language": ""}
    assert said["language"] == "en"
    assert said["recording"]["format"] == "WAV"


async def test_a_played_recording_shows_words_and_then_segments(audio: ScriptedAudio, question: str) -> None:
    audio.script = live(segment(0, "Which city?"))
    played = ("transcribe", question, "--stream", "--audio-service", audio.target)
    code, out, err = await run(*played, "--policy", "local-agreement", "--pause-ms", "300")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "partial  [Which]",
        "partial  Which [city?]",
        "   0.00    1.50  Which city?",
        "4.0 s of audio · 3.0 s of speech · 0.5 s of work · real-time factor 0.12 · demo-whisper",
    ]
    options = audio.requests[0].options
    assert (options.policy, options.pause_ms, options.format.sample_rate_hz) == (2, 300, 8_000)
    code, out, _ = await run(*played, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == [
        "speech_started", "partial", "partial", "segment", "speech_summary",
    ]  # fmt: skip


async def test_each_picture_gets_a_line_and_a_bad_one_its_own(vision: ScriptedVision, tmp_path: Path) -> None:
    for name in ("a.png", "bad.png", "shape.png"):
        (tmp_path / name).write_bytes(name.encode())
    vision.refuses[b"bad.png"] = Refusal("INVALID_ARGUMENT", "images[0]: PNG, JPEG or WebP, got text", "INVALID_INPUT")
    results = [labels(("red circle", 0.991), ("red square", 0.009), indices=[7, 4])]
    vision.script = [vision_pb2.ClassifyResponse(results=results, model="shapes", timing=TIMING)]
    files = [str(tmp_path / name) for name in ("a.png", "bad.png", "none.png", "shape.png")]
    code, out, err = await run("classify", *files, "--top", "2", "--model", "shapes", "--vision", vision.target)
    assert code == 1
    assert out.splitlines() == [
        f"{files[0]}      red circle #7 0.99  red square #4 0.01",
        f"{files[3]}  red circle #7 0.99  red square #4 0.01",
    ]
    assert err.splitlines() == [
        f"hedgerow: {files[1]}: images[0]: PNG, JPEG or WebP, got text",
        f"hedgerow: {files[2]}: images[0]: a file that can be read, got {files[2]} (No such file or directory)",
    ]
    assert {(request.model, request.top_k) for request in vision.requests} == {("shapes", 2)}


async def test_labels_as_json_are_one_object(vision: ScriptedVision, tmp_path: Path) -> None:
    (tmp_path / "shape.png").write_bytes(b"png")
    results = [labels(("red circle", 0.75), indices=[7])]
    vision.script = [vision_pb2.ClassifyResponse(results=results, model="shapes", timing=TIMING)]
    file = str(tmp_path / "shape.png")
    code, out, err = await run("classify", file, "--json", HEDGEROW_TARGET_VISION=vision.target)
    [result] = json.loads(out)["results"]
    assert (code, err, result["file"], result["model"]) == (0, "", file, "shapes")
    assert result["labels"] == [{"name": "red circle", "score": 0.75, "index": 7}]
    code, out, err = await run("classify", "none.png", "--json", "--vision", vision.target)
    [result] = json.loads(out)["results"]
    assert (code, err, result["error"]["reason"]) == (1, "", "INVALID_INPUT")


@pytest.mark.parametrize(
    ("command", "service"),
    [
        ("classify FILE --vision", "vision service"),
        ("transcribe FILE --audio-service", "audio service"),
        ("transcribe FILE --stream --audio-service", "audio service"),
        ("ask --audio FILE --stream --gateway", "gateway"),
        ("ask ? --gateway", "gateway"),
    ],
)
async def test_without_a_service_the_error_says_how_to_start_one(command: str, service: str, question: str) -> None:
    target = f"127.0.0.1:{free_port()}"
    arguments = [question if part == "FILE" else part for part in command.split()]
    message = f'no {service} at {target}; start one with "hedgerow up"'
    assert await run(*arguments, target) == (1, "", f"hedgerow: {message}\n")
    code, out, err = await run(*arguments, target, "--json")
    assert (code, err, json.loads(out)["error"]["message"]) == (1, "", message)
