"""The tables of `status`, `stats` and `project list`."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Listed
from datetime import datetime

from django.utils import timezone
from rich.table import Table
from rich.text import Text

from tasks_app.cli.terminal import Screen
from tasks_app.core.amounts import dollars, duration_in_words
from tasks_app.core.phases import Phase, Tone
from tasks_app.core.text import strip_controls
from tasks_app.core.types import Usage
from tasks_app.models import Decision, Project, Question, Sequence, Step, Task
from tasks_app.schemas.workers import QueuedTaskOut
from tasks_app.services.projects.settings import SettingInEffect
from tasks_app.services.publishing.settings import (
    author_of,
    forge_address_of,
    stored_credential,
    target_of,
)
from tasks_app.services.sequences import upcoming_files
from tasks_app.services.usage import statistics
from tasks_app.services.usage.statistics import Metrics

_STYLES: dict[Tone, str] = {
    "quiet": "dim",
    "active": "cyan",
    "attention": "bold yellow",
    "bad": "red",
    "good": "green",
}


_AT_WORK = (Phase.PENDING, Phase.RUNNING)


def table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


def show_tasks(tasks: Listed[Task], screen: Screen) -> None:
    """Print one line for each task: its state, title, project, open questions with who is asked, and age."""
    open_questions = Question.objects.open_by_task(tasks)
    now = timezone.now()
    lines = [
        [
            Text(str(task.pk)),
            _state_text(task),
            Text(strip_controls(task.title, one_line=True)),
            Text(task.project.name),
            Text(", ".join(map(_asked_of, open_questions.get(task.pk, ())))),
            Text(_age(task.created_at, now)),
        ]
        for task in tasks
    ]
    screen.columns(("ID", "STATE", "TITLE", "PROJECT", "QUESTION", "AGE"), lines, shrink=2)


def _asked_of(question: Question) -> str:
    """Return the question's id, with the user name of who is asked and how many others are: `12 (ann +2)`."""
    names = [one.user.username for one in question.asked_now]
    others = f" +{len(names) - 1}" if len(names) > 1 else ""
    return f"{question.pk} ({names[0]}{others})" if names else str(question.pk)


def show_sequences(sequences: Listed[Sequence], screen: Screen) -> None:
    """Print one line for each sequence; `DONE` counts upcoming tasks too, as its page does."""
    all_done = statistics.tasks_done(sequences)
    now, lines = timezone.now(), []
    for sequence in sequences:
        done, started = all_done[sequence.pk]
        is_new = not started and sequence.phase in _AT_WORK
        progress = "" if is_new else "not started"
        if started:
            total = sequence.tasks.count() + len(upcoming_files(sequence)[0])
            progress = f"{done} of {total}"
        line = (
            Text(f"sequence:{sequence.pk}"),
            _state_text(sequence, not_started=is_new),
            Text(strip_controls(sequence.folder, one_line=True)),
            Text(sequence.project.name),
            Text(progress),
            Text(_age(sequence.created_at, now)),
        )
        lines.append(line)
    screen.columns(("ID", "STATE", "FOLDER", "PROJECT", "DONE", "AGE"), lines, shrink=2)


def _age(at: datetime, now: datetime) -> str:
    """Return the largest unit: `20 min`, `3 h`, `2 d`."""
    return " ".join(duration_in_words((now - at).total_seconds()).split()[:2])


def queue_table(entries: Listed[QueuedTaskOut]) -> Table:
    rows = table("PLACE", "ID", "TASK", "PRIORITY", "WHAT IT WAITS FOR")
    for entry in entries:
        place = "–" if entry.position is None else str(entry.position)
        rows.add_row(place, str(entry.task), entry.name, entry.priority, Text(strip_controls(entry.sentence)))
    return rows


def decisions_table(decisions: Listed[Decision]) -> Table:
    rows = table("DECISION", "STATE", "WHERE", "WHAT", "DECIDED", "USES")
    for one in decisions:
        where = ", ".join(one.paths) or (f"step {one.step}" if one.step else "project")
        who = ""
        if one.decided_by and one.decided_at:
            who = f"{one.decided_by.shown_name}, {one.decided_at:%Y-%m-%d}"
        said = one.statement
        if one.exceptions_in_words:
            said += f"\nExcept: {one.exceptions_in_words}"
        if one.exception_to:
            said += f"\nException to {one.exception_to.label}"
        if one.asked:
            said += f"\nQuestion: {one.asked}"
        if one.why_review:
            said += f"\n(look again: {one.why_review})"
        uses = str(one.uses)
        if one.overrides:
            uses += f", overridden {one.overrides}"
        if one.doubts:
            uses += f", does not fit {one.doubts}"
        texts = (Text(strip_controls(text)) for text in (where, said, who))
        rows.add_row(one.label, one.state_in_words, *texts, uses)
    return rows


def steps_table(steps: Listed[Step]) -> Table:
    rows = table("  ", "STEP", "STATE", "RUNS", "WORKED", "TOKENS", "COST")
    metrics = statistics.of_steps(steps)
    for step in steps:
        totals, tokens, cost = metrics[step.pk], "", ""
        runs = len(step.runs.all())
        if runs:
            tokens = f"{totals.usage.read_tokens + totals.usage.output_tokens:,}"
            cost = dollars(totals.usage.cost_usd)
        rows.add_row(
            f"  {step.position}",
            step.name,
            _state_text(step),
            str(runs),
            duration_in_words(totals.duration.working),
            tokens,
            cost,
        )
    return rows


def projects_table(projects: Iterable[Project]) -> Table:
    rows = table("NAME", "SOURCE", "BRANCH", "TASKS")
    for project in projects:
        rows.add_row(project.name, project.source, project.branch, str(project.tasks.count()))
    return rows


def settings_table(settings: Iterable[SettingInEffect]) -> Table:
    rows = table("SETTING", "CAT-HERDER.YAML", "OVERRIDE", "IN EFFECT")
    for one in settings:
        values = (one.in_file or "not set", one.override or "none", one.in_effect)
        rows.add_row(one.setting.label, *(Text(strip_controls(value)) for value in values))
    return rows


def publishing_table(project: Project) -> Table:
    """Return where and how the project's results are published."""
    rows, credential, pull_requests = table("PUBLISHING", ""), "none", "at no known forge"
    if stored := stored_credential(project):
        credential = f"{stored.get_kind_display()}, {stored.shown}, for {stored.url}"
    if address := forge_address_of(project):
        pull_requests = f"{address.kind.label}, {address.api_url}, {address.repository}"
    for name, value in (
        ("Repository", target_of(project)),
        ("Credential", credential),
        ("Protected branches", project.protected_branches),
        ("Author of squashed commits", "{} <{}>".format(*author_of(project))),
        ("Required approvals", str(project.required_approvals)),
        ("Pull requests", pull_requests),
    ):
        rows.add_row(name, Text(strip_controls(value)))
    return rows


def usage_table(heading: str, usages: Iterable[tuple[str, Usage]]) -> Table:
    """Return a table with tokens in, cached and out, and dollars, one row per name."""
    rows = table(heading, "TOKENS IN", "OF THESE CACHED", "TOKENS OUT", "COST")
    for name, usage in usages:
        rows.add_row(
            Text(strip_controls(name)),
            f"{usage.read_tokens:,}",
            f"{usage.cache_read_tokens:,}",
            f"{usage.output_tokens:,}",
            dollars(usage.cost_usd),
        )
    return rows


def describe_spending(metrics: Metrics) -> str:
    """Return time, tokens and cost in one line. Input includes cached tokens."""
    duration, usage = metrics.duration, metrics.usage
    if duration.total is None:
        return "not started yet"
    return (
        f"{duration_in_words(duration.total)} in total, {duration_in_words(duration.working)} working · "
        f"{usage.read_tokens:,} tokens in, {usage.output_tokens:,} out "
        f"(cache: {usage.cache_write_tokens:,} written, {usage.cache_read_tokens:,} read) · "
        f"{dollars(usage.cost_usd)}"
    )


def state_label(thing: Task | Step | Sequence, *, not_started: bool = False) -> str:
    """Return the state as pages name it: what nobody has started is not pending."""
    if isinstance(thing, Task):
        not_started = thing.not_started
    if not_started:
        return "not started"
    return thing.phase_display.label


def _state_text(thing: Task | Step | Sequence, *, not_started: bool = False) -> Text:
    label, display = state_label(thing, not_started=not_started), thing.phase_display
    return Text(label, style="dim" if label == "not started" else _STYLES[display.tone])
