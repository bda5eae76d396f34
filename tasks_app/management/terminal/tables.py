"""The tables of `status` and `project list`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from tasks_app.events.lines import plain
from tasks_app.management.terminal.facts import duration, paused, usage_of
from tasks_app.models import Project, Question, Step, Task
from tasks_app.state.phases import Tone
from tasks_app.types import Usage

_STYLES: dict[Tone, str] = {
    "quiet": "dim",
    "active": "cyan",
    "attention": "bold yellow",
    "bad": "red",
    "good": "green",
}


def table(*columns: str) -> Table:
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        made.add_column(column)
    return made


def tasks_table(tasks: Sequence[Task]) -> Table:
    rows = table("ID", "PHASE", "TASK", "TITLE", "QUESTION", "TIME", "COST")
    asked = _open_numbers(tasks)
    for task in tasks:
        rows.add_row(
            str(task.pk),
            _phase(task),
            f"{task.project.name}/{task.slug}",
            Text(plain(task.title)),
            ", ".join(map(str, asked.get(task.pk, ()))),
            shown_time(duration(task)),
            _dollars(usage_of(task)),
        )
    return rows


def steps_table(steps: Iterable[Step]) -> Table:
    rows = table("  ", "STEP", "PHASE", "RUNS", "TIME", "TOKENS", "COST")
    for step in steps:
        runs = list(step.runs.all())
        seconds = [duration(run) or 0.0 for run in runs]
        rows.add_row(
            f"  {step.position}",
            step.name,
            _phase(step),
            str(len(runs)),
            shown_time(sum(seconds)) if runs else "",
            f"{sum(run.input_tokens + run.output_tokens for run in runs):,}" if runs else "",
            f"${sum(run.cost_usd for run in runs):.4f}" if runs else "",
        )
    return rows


def projects_table(projects: Iterable[Project]) -> Table:
    rows = table("NAME", "SOURCE", "BRANCH", "TASKS")
    for project in projects:
        rows.add_row(project.name, project.source, project.branch, str(project.tasks.count()))
    return rows


def spent(task: Task, usage: Usage) -> str:
    """Time with and without pauses, tokens and cost, in one line."""
    total = duration(task)
    if total is None:
        return "not started yet"
    waited = paused(task)
    return (
        f"{shown_time(total)} in all, {shown_time(max(0.0, total - waited))} without pauses · "
        f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, "
        f"cache {usage.cache_write_tokens:,} written, {usage.cache_read_tokens:,} read · {_dollars(usage)}"
    )


def shown_time(seconds: float | None) -> str:
    """`4 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _phase(thing: Task | Step) -> Text:
    facts = thing.phase_facts
    return Text(facts.label, style=_STYLES[facts.tone])


def _dollars(usage: Usage) -> str:
    return f"${usage.cost_usd:.4f}"


def _open_numbers(tasks: Sequence[Task]) -> dict[int, list[int]]:
    rows = Question.objects.open().filter(task__in=[task.pk for task in tasks]).values_list("task_id", "pk")
    found: dict[int, list[int]] = {}
    for task_id, question_id in rows:
        found.setdefault(task_id, []).append(question_id)
    return found
