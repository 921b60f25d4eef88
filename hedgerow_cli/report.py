"""The report of an answer: lines for people, one object for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from hedgerow import Answer, Change, Citations, Decision, Label, PromptReport
from hedgerow_cli.waterfall import short


def report_lines(answer: Answer) -> list[str]:
    """The lines below the waterfall: transcript, image labels, decisions, cache, model, speed, trace."""
    transcript = [f"transcript  {answer.transcript}"] if answer.transcript else []
    image_labels = [f"labels  {label_text(labels)}" for labels in answer.sights]
    decisions = [f"{short(made.at_ms):>6} ms  {_decision_text(made)}" for made in answer.decisions]
    return [
        *transcript,
        *image_labels,
        *_prompt(answer.prompt),
        *(f"changed  {_change(each)}" for each in answer.changes),
        *([f"cut  {_change(answer.cut)}"] if answer.cut else []),
        *(f"late  {patch.stage.removeprefix('tool:')}: {' '.join(patch.text.split())}" for patch in answer.patches),
        *(f"from  {each.tool}: {_places(each)}" for each in answer.citations),
        *(f"calls  {call.name}({call.arguments})" for call in answer.tool_calls),
        *decisions,
        " · ".join(_what(answer)),
        " · ".join(_how_fast(answer)),
        f"trace {answer.trace_id}",
    ]


def _change(change: Change) -> str:
    values = " → ".join(filter(None, (change.before, change.after)))
    return f"{change.what}{f' {values}' if values else ''} (by {change.by})"


def _places(found: Citations) -> str:
    return " · ".join(f"{each.title} ({each.source})" if each.title else each.source for each in found.citations)


def _prompt(report: PromptReport | None) -> Iterator[str]:
    if report is None:
        return
    about = "about " if report.estimated else ""
    parts = [f"{about}{report.tokens_before} → {report.tokens_after} tokens", *report.diet]
    if report.dropped_turns:
        parts.append(f"{report.dropped_turns} turns left out (summary: {report.summary})")
    yield "prompt  " + " · ".join([*parts, *([report.system] if report.system else [])])


def label_text(labels: Sequence[Label]) -> str:
    """`red circle 0.99  blue circle 0.01`."""
    return "  ".join(f"{label.name} {label.score:.2f}" for label in labels) or "nothing"


def _decision_text(made: Decision) -> str:
    return f"{made.policy} {made.action}: {made.subject}{f' ({made.reason})' if made.reason else ''}"


def _what(answer: Answer) -> Iterator[str]:
    similarity = f" {answer.cache.similarity:.2f}" if answer.cache.similarity is not None else ""
    yield answer.model or "no model"
    yield answer.finish_reason
    details = ", ".join(filter(None, (answer.cache.reason, "stale" if answer.cache.stale else "")))
    reason = f" ({details})" if details else ""
    yield f"cache {answer.cache.verdict}{similarity}{reason}"
    if answer.usage.drafted_tokens:
        yield f"{answer.usage.accepted_tokens} of {answer.usage.drafted_tokens} drafted tokens accepted"
    if answer.cost_usd:
        yield f"${answer.cost_usd:.6f}"
    if answer.degraded:
        yield f"degraded: {', '.join(answer.degraded)}"


def _how_fast(answer: Answer) -> Iterator[str]:
    if answer.ttft_ms is not None:
        yield f"▲ first token {short(answer.ttft_ms)} ms"
    yield f"total {short(answer.total_ms)} of {short(answer.budget_ms)} ms"
    if (
        tokens := answer.usage.completion_tokens
    ):  # over the whole answer: tokens that travel together have no time between them
        yield f"{tokens * 1000 / answer.total_ms:.0f} tokens/s"


def as_object(answer: Answer) -> dict[str, Any]:
    """`ttft_ms` and `total_ms` are the gateway's; `client` holds what this program measured."""
    fields = asdict(answer)
    del fields["parsed"]  # a command has no types
    fields["client"] = fields.pop("timings")
    return fields
