"""What a script of one's own would do: Pillow, NumPy and ONNX Runtime in a loop, with nothing of this project.

Its arguments are the model's file and a JPEG. Reads `{"size": images of a batch, "seconds": …}` lines and writes the
images a second for each. Its first line is `{}`, once the model is warm. ONNX Runtime has its default options.
"""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

_RESIZE, _CROP = 256, 224  # the model's card: the shorter side, then the centre
_MEAN, _STD = np.float32(0.498), np.float32(0.502)


def prepare(data: bytes) -> NDArray[np.float32]:
    """Decode, resize, crop, normalize."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    scale = _RESIZE / min(picture.size)
    size = int(picture.width * scale), int(picture.height * scale)
    left, top = (round((side - _CROP) / 2) for side in size)
    picture = picture.resize(size, Image.Resampling.BICUBIC).crop((left, top, left + _CROP, top + _CROP))
    array = (np.asarray(picture, np.float32) / 255 - _MEAN) / _STD
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def rate(session: onnxruntime.InferenceSession, data: bytes, size: int, seconds: float) -> float:
    """Images a second, in batches of `size`."""
    (name,) = (entry.name for entry in session.get_inputs())
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        logits = session.run(None, {name: np.stack([prepare(data) for _ in range(size)])})[0]
        logits.argmax(-1)
        done += size
    return done / spent


def main() -> None:
    """Serve the lines of standard input."""
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    data = Path(sys.argv[2]).read_bytes()
    rate(session, data, 8, 1.0)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        print(json.dumps(rate(session, data, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
