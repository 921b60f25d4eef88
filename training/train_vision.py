"""Train the demo vision model: a small residual network that names coloured shapes.

    python train_vision.py OUT [--pictures N] [--epochs N]

Writes OUT/model.{ts,pt2,onnx}, OUT/model.int8.onnx when it is as good, OUT/labels.txt and OUT/model.yaml, whose `file` is
the fastest of them on this machine. All pictures come from `shapes.py`; those to measure with have other seeds. A few
minutes on two cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn

from shapes import LABELS, draw

SIDE = 64  # pixels
MEAN, STD = 0.5, 0.25  # of every channel
HELD_OUT_SEED = 1_000_000_000
LOSS_OF_INT8 = 0.002  # of accuracy: more than this, and the quantized model is not worth its speed
Run = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Block(nn.Module):
    """Two convolutions with a way around them; halves the sides."""

    def __init__(self, narrow: int, wide: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(narrow, wide, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.around = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride=2, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.around(x))


class Namer(nn.Module):
    """(N, 3, 64, 64) normalized pictures to (N, 48) probabilities and (N, 64) embeddings of unit length."""

    def __init__(self, widths: tuple[int, ...] = (24, 48, 64, 96), size: int = 64):
        super().__init__()
        first, *_, last = widths
        stem = [nn.Conv2d(3, first, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
        blocks = [Block(narrow, wide) for narrow, wide in zip(widths, widths[1:], strict=False)]
        self.trunk = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, size))
        self.classes = nn.Linear(size, len(LABELS), bias=False)
        self.sharpness = nn.Parameter(torch.tensor(12.0))

    def embed(self, image: torch.Tensor) -> torch.Tensor:
        found = self.trunk(image)
        return found / found.norm(dim=-1, keepdim=True).clamp_min(1e-6)

    def logits(self, embedding: torch.Tensor) -> torch.Tensor:
        return self.sharpness * F.linear(embedding, F.normalize(self.classes.weight))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = self.embed(image)
        return self.logits(embedding).softmax(-1), embedding


def picture(seed: int) -> tuple[np.ndarray, int]:
    """(64, 64, 3) bytes, resized as one service or another would, and the number of its label."""
    image, label = draw(seed)
    way = (cv2.INTER_AREA, cv2.INTER_LINEAR)[seed % 2]
    return cv2.resize(np.asarray(image), (SIDE, SIDE), interpolation=way), LABELS.index(label)


def pictures(first_seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(count, 3, 64, 64) bytes and their labels."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        drawn = pool.map(picture, range(first_seed, first_seed + count), chunksize=200)
    images = torch.from_numpy(np.stack([image for image, _ in drawn])).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor([label for _, label in drawn])


def normalize(images: torch.Tensor) -> torch.Tensor:
    return (images.float() / 255 - MEAN) / STD


def vary(images: torch.Tensor) -> torch.Tensor:
    """Mirrored and turned by quarters: shapes stay what they are."""
    if torch.rand(()) < 0.5:
        images = images.flip(-1)
    return torch.rot90(images, int(torch.randint(4, ())), (-2, -1))


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int, batch: int = 128) -> Namer:
    model = Namer().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps, pct_start=0.2)
    started = time.time()
    for epoch in range(epochs):
        losses = []
        for chosen in torch.randperm(len(images)).split(batch):
            if len(chosen) < batch:
                continue
            seen = vary(normalize(images[chosen])).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model.logits(model.embed(seen)), labels[chosen], label_smoothing=0.02)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {statistics.mean(losses):.4f}, {time.time() - started:.0f} s", flush=True)
    return model.to(memory_format=torch.contiguous_format).eval()


def export(model: Namer, calibration: np.ndarray, out: Path) -> None:
    example = torch.from_numpy(calibration[:2])
    with torch.inference_mode():
        torch.jit.trace(model, example).save(str(out / "model.ts"))
    batch = {"image": {0: torch.export.Dim("batch", min=1, max=1024)}}
    torch.export.save(torch.export.export(model, (example,), dynamic_shapes=batch), out / "model.pt2")
    names = {"input_names": ["image"], "output_names": ["probabilities", "embedding"]}
    torch.onnx.export(
        model, (example,), out / "model.onnx", dynamo=True, dynamic_shapes=batch, external_data=False, **names
    )
    quantize(out / "model.onnx", out / "model.int8.onnx", calibration)


def quantize(source: Path, target: Path, calibration: np.ndarray) -> None:
    """Static int8, each output channel with a scale of its own. Weights have 7 bits: processors without VNNI add up
    products in 16 bits, where 8 overflow."""

    class Reader(CalibrationDataReader):
        batches = iter(np.array_split(calibration, 8))

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.batches, None)
            return None if batch is None else {"image": batch}

    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Conv", "Add"],
        )


def runner(file: Path) -> Run:
    """The exported file, as a function of normalized pictures."""
    if file.suffix == ".onnx":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        return lambda images: tuple(session.run(["probabilities", "embedding"], {"image": images}))
    if file.suffix == ".pt2":
        return torch_runner(torch.export.load(file).module())
    return torch_runner(torch.jit.optimize_for_inference(torch.jit.load(file)))


def torch_runner(module: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> Run:
    def run(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            probabilities, embedding = module(torch.from_numpy(images))
            return probabilities.numpy(), embedding.numpy()

    return run


def accuracy(run: Run, images: np.ndarray, labels: np.ndarray) -> float:
    hits = [run(some)[0].argmax(-1) == right for some, right in batches(images, labels)]
    return float(np.concatenate(hits).mean())


def batches(images: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    parts = range(100, len(images), 100)
    return list(zip(np.split(images, parts), np.split(labels, parts), strict=True))


def milliseconds(runs: dict[Path, Run], images: np.ndarray, turns: int = 200) -> dict[Path, float]:
    """The median time of each, taken in turns."""
    spent: dict[Path, list[float]] = {file: [] for file in runs}
    for _ in range(turns):
        for file, run in runs.items():
            started = time.perf_counter()
            run(images)
            spent[file].append(time.perf_counter() - started)
    return {file: statistics.median(times[turns // 10 :]) * 1000 for file, times in spent.items()}


def describe(file: str, precision: str) -> str:
    return f"""\
# Names coloured shapes; made by training/train_vision.py. The suffix of `file` chooses the engine.
file: {file}
device: auto
precision: {precision}
input: {{name: image, shape: [3, {SIDE}, {SIDE}], dtype: float32}}
outputs: {{probabilities: probabilities, embedding: embedding}}
labels: labels.txt
preprocessing: {{resize: [{SIDE}, {SIDE}], fit: stretch, mean: {[MEAN] * 3}, std: {[STD] * 3}}}
batching: {{max_size: 32, preferred: [4, 8, 16], max_delay_ms: 2.0}}
"""


def measure(model: Namer, out: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Compare what was exported, drop a bad int8 model, and point model.yaml at the fastest."""
    reference = torch_runner(model)
    right = accuracy(reference, images, labels)
    print(f"torch: accuracy {right:.4f} of {len(images)}")
    if right < 0.99:
        raise SystemExit("the model is not good enough")
    runs = {}
    for file in sorted(out.glob("model.*.onnx")) + [out / f"model.{suffix}" for suffix in ("onnx", "ts", "pt2")]:
        run, quantized = runner(file), ".int8." in file.name
        got = accuracy(run, images, labels)
        print(f"{file.name}: accuracy {got:.4f}, {file.stat().st_size / 1e6:.2f} MB")
        if quantized and got < right - LOSS_OF_INT8:
            file.unlink()
            continue
        if not quantized:
            for ours, theirs in zip(run(images[:33]), reference(images[:33]), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
        runs[file] = run
    times = {size: milliseconds(runs, images[:size]) for size in (1, 32)}
    for file in runs:
        print(f"{file.name}: {times[1][file]:.3f} ms for 1, {times[32][file]:.3f} ms for 32")
    fastest = min(runs, key=lambda file: times[1][file] * times[32][file])
    (out / "model.yaml").write_text(describe(fastest.name, "int8" if ".int8." in fastest.name else "fp32"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--pictures", type=int, default=40_000)
    arguments.add_argument("--epochs", type=int, default=10)
    args = arguments.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    torch.manual_seed(0)
    images, labels = pictures(0, args.pictures)
    print(f"drew {len(images)}", flush=True)
    model = train(images, labels, args.epochs)
    held_out, right = pictures(HELD_OUT_SEED, 4_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is old, and says so
        export(model, normalize(images[:512]).numpy(), args.out)
        (args.out / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
        measure(model, args.out, normalize(held_out).numpy(), right.numpy())


if __name__ == "__main__":
    main()
