"""Progress of a pull: a bar in a terminal, else a line for each change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TransferSpeedColumn

from launcher.catalog.steps import Report, Step

_KEPT = ("placed", "present", "note", "waiting")  # these stay on the screen


@contextmanager
def shown(console: Console) -> Iterator[Report]:
    """Gives what a pull reports to."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    bar = BarColumn(bar_width=None)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), bar, DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress)


def as_line(step: Step) -> str:
    """A step as a line of text."""
    of = f" of {step.total / 1e6:.0f} MB" if step.total else ""
    detail = f"{': ' if step.state in ('note', 'waiting') else ' '}{step.detail}" if step.detail else ""
    return f"{step.model} {step.state}{detail}{of}"


class _Lines:
    """Each state once: a download says how large it is when it begins."""

    def __init__(self, console: Console):
        self._console = console
        self._latest = ("", "", "")

    def __call__(self, step: Step) -> None:
        if (step.model, step.state, step.detail) != self._latest:
            self._latest = (step.model, step.state, step.detail)
            self._console.print(as_line(step), markup=False, highlight=False, soft_wrap=True)


class _Bar:
    """One bar for the step that is under way; above it, what has been done."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._task: TaskID | None = None
        self._name = ""

    def __call__(self, step: Step) -> None:
        if step.state in _KEPT:
            self._progress.console.print(as_line(step), markup=False, highlight=False, soft_wrap=True)
            self._begin("")
            return
        name = f"{step.model}: {step.state} {step.detail}".rstrip()
        if name != self._name:
            self._begin(name)
        if self._task is not None:
            self._progress.update(self._task, completed=step.done, total=step.total or None)

    def _begin(self, name: str) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=None) if name else None
        self._name = name
