"""An answer's stages as bars on one time axis: what each took, in front of the slice it had."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hedgerow import Answer, StageReport

_COLOURS = {"ok": "green", "overrun": "yellow", "failed": "red", "skipped": "bright_black", "replaced": "magenta"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MOST_STRETCH = 4  # a budget longer than so many totals would squeeze the bars to nothing: the axis ends at the total


def waterfall(answer: Answer, width: int = 80) -> Table:
    """One row for each stage, and an axis with the first token's place on it, for a screen of `width` columns."""
    end_ms = axis_ms(answer)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=width // 2 - 2)
    for stage in answer.stages:
        took = f"{short(stage.spent_ms)}/{short(stage.budget_ms)} ms"
        table.add_row(Text(stage.name, "bold"), Bar(stage, end_ms), Text(took), _outcome(stage))
    table.add_row("", Axis(answer.ttft_ms, end_ms), Text(f"{short(end_ms)} ms", "dim"), "")
    return table


def axis_ms(answer: Answer) -> float:
    """How much time the width stands for: the budget or the total, whichever is longer, within reason."""
    longest = max([answer.total_ms, *(stage.started_ms + stage.spent_ms for stage in answer.stages)])
    return answer.budget_ms if longest < answer.budget_ms <= _MOST_STRETCH * longest else max(longest, 0.001)


@dataclass
class _Wide:
    """Takes the width that the other columns leave."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)


@dataclass
class Bar(_Wide):
    """`███▌░░░`: spent, then what was left of the slice."""

    stage: StageReport
    end_ms: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, ascii_only = options.max_width, options.ascii_only
        scale = width / self.end_ms
        start = min(int(self.stage.started_ms * scale), width - 1)
        spent = spent_cells(self.stage.spent_ms * scale, width - start, ascii_only)
        slice_end = min(width, round((self.stage.started_ms + self.stage.budget_ms) * scale))
        rest = ("." if ascii_only else "░") * (slice_end - start - len(spent))
        yield Text.assemble(" " * start, (spent, _COLOURS.get(self.stage.outcome, "")), (rest, "bright_black"))


def spent_cells(cells: float, room: int, ascii_only: bool) -> str:
    """A bar `cells` long to an eighth of a cell, at most `room`; a time above 0 is visible."""
    if cells <= 0:
        return ""
    if ascii_only:
        return "#" * min(room, max(1, round(cells)))
    eighths = min(room * 8, max(1, round(cells * 8)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@dataclass
class Axis(_Wide):
    """A line with a mark where the first token came."""

    first_token_ms: float | None
    end_ms: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        line, mark = ("-", "^") if options.ascii_only else ("─", "▲")
        cells = [line] * width
        if self.first_token_ms is not None:
            cells[min(width - 1, int(self.first_token_ms / self.end_ms * width))] = mark
        yield Text("".join(cells), "dim")


def _outcome(stage: StageReport) -> Text:
    return Text.assemble((stage.outcome, _COLOURS.get(stage.outcome, "")), f" {stage.detail}".rstrip())


def short(value: float) -> str:
    """As few digits as are enough: `0.4`, `12`, `30000`."""
    return f"{value:.1f}" if 0 < value < 10 else f"{value:.0f}"
