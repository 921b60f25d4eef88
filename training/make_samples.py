"""Make the samples that the demo and the tests send: three pictures and four spoken questions.

    python make_samples.py OUT [--whisper MODEL]

The speech model must hear each recording word for word, so voices are tried until it does. Always the same files.
"""

from __future__ import annotations

import argparse
import random
import wave
from pathlib import Path

import espeakng_loader
import numpy as np
from faster_whisper import WhisperModel

from shapes import draw
from speech_data import RATE, Speaker

# To the seed; those from 0 on are what the vision model is trained with.
PICTURES = {"red-circle.png": 2_000_000_000, "blue-star.jpg": 2_000_000_032, "yellow-triangle.webp": 2_000_000_058}
SPEECH = {
    "capital-of-france.wav": "What is the capital of France?",
    "seven-plus-five.wav": "What is 7 plus 5?",
    "what-is-in-the-image.wav": "What is in the image?",
    "story-about-a-fox.wav": "Tell me a story about a fox.",
}
BEFORE_S, AFTER_S = 0.3, 0.6  # of silence
SMALLEST = 160  # pixels a side
LOUDEST = 20_000  # of 32,767
TRIES = 200


def save_pictures(out: Path) -> None:
    for name, seed in PICTURES.items():
        label = name.partition(".")[0].replace("-", " ")
        while min((picture := draw(seed, label)[0]).size) < SMALLEST:
            seed += 100
        picture.save(out / name, quality=90)
        print(f"{name}: {picture.width} × {picture.height}, seed {seed}")


def save_speech(out: Path, whisper: WhisperModel) -> None:
    speaker = Speaker(espeakng_loader.get_library_path(), espeakng_loader.get_data_path())
    for name, text in SPEECH.items():
        for seed in range(TRIES):
            audio = record(speaker, text, seed)
            if (heard := hear(whisper, audio)) == text:
                break
        else:
            raise SystemExit(f"{name}: no voice is understood; the last was heard as {heard!r}")
        with wave.open(str(out / name), "wb") as file:
            file.setparams((1, 2, RATE, len(audio), "NONE", ""))
            file.writeframes(audio.tobytes())
        print(f"{name}: {len(audio) / RATE:.2f} s, seed {seed}")


def record(speaker: Speaker, text: str, seed: int) -> np.ndarray:
    """16-bit samples at RATE, with silence around the words."""
    spoken = speaker.say(text, random.Random(seed))
    loud = np.flatnonzero(np.abs(spoken.audio) > 200)
    words = spoken.audio[loud[0] : loud[-1] + 1].astype(np.float32)
    words *= LOUDEST / np.abs(words).max()
    silence = [np.zeros(round(seconds * RATE), np.int16) for seconds in (BEFORE_S, AFTER_S)]
    return np.concatenate([silence[0], words.astype(np.int16), silence[1]])


def hear(whisper: WhisperModel, audio: np.ndarray) -> str:
    """The transcript with the audio service's settings and with the library's; empty where the two differ."""
    samples = audio.astype(np.float32) / 32768
    heard = set()
    for settings in ({"without_timestamps": True}, {"vad_filter": True, "word_timestamps": True}):
        segments, _ = whisper.transcribe(samples, language="en", beam_size=1, **settings)
        heard.add(" ".join(segment.text.strip() for segment in segments))
    return heard.pop() if len(heard) == 1 else ""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--whisper", default=str(Path(__file__).parents[1] / "tests" / "models" / "demo-whisper"))
    args = arguments.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    save_pictures(args.out)
    save_speech(args.out, WhisperModel(args.whisper, device="cpu", compute_type="int8", cpu_threads=1))


if __name__ == "__main__":
    main()
