"""The tables of `status`, `stats` and `project list`."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Listed

from rich.table import Table
from rich.text import Text

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
from tasks_app.services.usage import statistics
from tasks_app.services.usage.statistics import Metrics

_STYLES: dict[Tone, str] = {
    "quiet": "dim",
    "active": "cyan",
    "attention": "bold yellow",
    "bad": "red",
    "good": "green",
}


def table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


def tasks_table(tasks: Listed[Task]) -> Table:
    rows = table("ID", "PHASE", "TASK", "TITLE", "QUESTION", "WORKED", "COST")
    open_questions = _open_question_ids(tasks)
    metrics = statistics.of_tasks(tasks)
    for task in tasks:
        rows.add_row(
            str(task.pk),
            _phase_text(task),
            f"{task.project.name}/{task.slug}",
            Text(strip_controls(task.title)),
            ", ".join(map(str, open_questions.get(task.pk, ()))),
            duration_in_words(metrics[task.pk].duration.working),
            dollars(metrics[task.pk].usage.cost_usd),
        )
    return rows


def sequences_table(sequences: Listed[Sequence]) -> Table:
    """Return the table of sequences; `DONE` is the number of done tasks out of the started ones."""
    rows = table("ID", "PHASE", "SEQUENCE", "FOLDER", "DONE", "WORKED", "COST")
    metrics = statistics.of_sequences(sequences)
    done = statistics.tasks_done(sequences)
    for sequence in sequences:
        rows.add_row(
            f"sequence:{sequence.pk}",
            _phase_text(sequence),
            f"{sequence.project.name}/{sequence.slug}",
            Text(strip_controls(sequence.folder)),
            _tasks_done(sequence, *done[sequence.pk]),
            duration_in_words(metrics[sequence.pk].duration.working),
            dollars(metrics[sequence.pk].usage.cost_usd),
        )
    return rows


def _tasks_done(sequence: Sequence, done: int, started: int) -> str:
    if not started:
        return "not started"
    return f"{done} of {started}" + ("" if sequence.phase == Phase.DONE else " started")


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
        if one.asked:
            said += f"\nQuestion: {one.asked}"
        if one.why_review:
            said += f"\n(look again: {one.why_review})"
        uses = f"{one.uses}" + (f", overridden {one.overrides}" if one.overrides else "")
        uses += f", does not fit {one.doubts}" if one.doubts else ""
        texts = (Text(strip_controls(text)) for text in (where, said, who))
        rows.add_row(one.label, one.state_in_words, *texts, uses)
    return rows


def steps_table(steps: Listed[Step]) -> Table:
    rows = table("  ", "STEP", "PHASE", "RUNS", "WORKED", "TOKENS", "COST")
    metrics = statistics.of_steps(steps)
    for step in steps:
        runs, totals = len(step.runs.all()), metrics[step.pk]
        rows.add_row(
            f"  {step.position}",
            step.name,
            _phase_text(step),
            str(runs),
            duration_in_words(totals.duration.working),
            f"{totals.usage.read_tokens + totals.usage.output_tokens:,}" if runs else "",
            dollars(totals.usage.cost_usd) if runs else "",
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
    rows, stored = table("PUBLISHING", ""), stored_credential(project)
    address = forge_address_of(project)
    credential = f"{stored.get_kind_display()}, {stored.shown}, for {stored.url}" if stored else "none"
    for name, value in (
        ("Repository", target_of(project)),
        ("Credential", credential),
        ("Protected branches", project.protected_branches),
        ("Author of squashed commits", "{} <{}>".format(*author_of(project))),
        ("Required approvals", str(project.required_approvals)),
        (
            "Pull requests",
            f"{address.kind.label}, {address.api_url}, {address.repository}"
            if address
            else "at no known forge",
        ),
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


def _phase_text(thing: Task | Step | Sequence) -> Text:
    display = thing.phase_display
    if isinstance(thing, Task) and thing.not_started:
        return Text("not started", style="dim")
    return Text(display.label, style=_STYLES[display.tone])


def _open_question_ids(tasks: Listed[Task]) -> dict[int, list[int]]:
    rows = Question.objects.open().filter(task__in=[task.pk for task in tasks]).values_list("task_id", "pk")
    found: dict[int, list[int]] = {}
    for task_id, question_id in rows:
        found.setdefault(task_id, []).append(question_id)
    return found
