"""The comparison as pictures: how times are distributed, and what they were over time."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.load import Sample

_STYLES = {
    "before": ("#b3452c", "provider alone"),
    "hedging_only": ("#c9962b", "gateway, no cache"),
    "after": ("#2f6b4f", "gateway, cache and all policies"),
}
_TICKS_MS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 8_000)
_BIN_S = 3.0
_TITLE = "A jagged provider (simulated), the same requests on every path"


def draw(samples: Mapping[str, Sequence[Sample]], folder: Path) -> list[Path]:
    """Write `jagged_cdf.png` and `jagged_timeline.png`; of each arm, `at_s` counts its own time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    drawings = {"jagged_cdf.png": _cdf, "jagged_timeline.png": _timeline}
    for name, drawing in drawings.items():
        figure = drawing(pyplot, samples)
        _save(figure, folder / name)
        pyplot.close(figure)
    return [folder / name for name in drawings]


def _save(figure: Any, path: Path) -> None:
    """With a palette: a third of the size, and a repository keeps every version."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    Image.open(drawn).convert("RGB").quantize(48).save(path, optimize=True)


def _cdf(pyplot: Any, samples: Mapping[str, Sequence[Sample]]) -> Any:
    """Drawn by how many take longer, so that the tail can be seen."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axis, title in zip(axes, ("first text", "whole answer"), strict=True):
        for name, taken in samples.items():
            times = sorted((each.waited_first_s if title == "first text" else each.waited_s) * 1000 for each in taken)
            share_over = [1 - number / len(times) for number in range(len(times))]
            axis.plot(times, share_over, color=_STYLES[name][0], label=_STYLES[name][1], linewidth=1.6)
        axis.set(xscale="log", yscale="log", ylim=(3e-4, 1.05), xlim=(1, 10_000), title=f"Time to the {title}")
        axis.set_xlabel("ms from the scheduled arrival")
        axis.set_xticks(_TICKS_MS, [f"{tick:,}" for tick in _TICKS_MS])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("percentile")
    axes[0].set_yticks([0.5, 0.05, 0.01, 0.001], ["p50", "p95", "p99", "p99.9"])
    axes[0].minorticks_off()
    axes[0].legend(loc="lower left", frameon=False)
    figure.suptitle(_TITLE)
    return figure


def _timeline(pyplot: Any, samples: Mapping[str, Sequence[Sample]]) -> Any:
    figure, axes = pyplot.subplots(
        len(samples), 1, figsize=(10, 2.2 * len(samples)), sharex=True, sharey=True, layout="constrained"
    )
    for axis, (name, taken) in zip(axes, samples.items(), strict=True):
        color, title = _STYLES[name]
        for percent, style in ((50, "-"), (99, "--")):
            points = _over_time(taken, percent)
            axis.plot(*zip(*points, strict=True), color="black", linestyle=style, linewidth=1, label=f"p{percent}")
        at_s, total_ms = [each.at_s for each in taken], [each.waited_s * 1000 for each in taken]
        axis.scatter(at_s, total_ms, s=3, alpha=0.5, color=color, linewidths=0)
        axis.set(yscale="log", ylim=(1, 12_000), title=title, ylabel="whole answer, ms")
        axis.set_yticks([1, 10, 100, 1_000, 8_000], ["1", "10", "100", "1,000", "8,000"])
        axis.grid(alpha=0.3)
    axes[0].legend(loc="lower right", ncols=2, fontsize="small")
    figure.suptitle(_TITLE)
    axes[-1].set_xlabel(f"measured time, s (percentiles of {_BIN_S:g} s)")
    return figure


def _over_time(taken: Sequence[Sample], percent: float) -> list[tuple[float, float]]:
    """Middle of each bin in seconds, and the percentile of its totals in milliseconds."""
    points = []
    for number, group in groupby(sorted(taken, key=lambda each: each.at_s), key=lambda each: each.at_s // _BIN_S):
        times = sorted(each.waited_s * 1000 for each in group)
        points.append(((number + 0.5) * _BIN_S, times[math.ceil(len(times) * percent / 100) - 1]))
    return points
