"""Entries of the live log, made from events, with what reviewers and agents said between them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from tasks_app.agent.tools import was_refused, without_hook_name
from tasks_app.core.amounts import counted
from tasks_app.core.asked_items import parts_of_question
from tasks_app.core.text import strip_controls
from tasks_app.history.deeds import TaskDeed
from tasks_app.history.events.lines import summarise
from tasks_app.models import (
    KIND_NAMES,
    Event,
    EventKind,
    QuestionKind,
    Review,
    ReviewVerdict,
    Run,
    Task,
    ThreadComment,
)
from tasks_app.web.rendering.diff import DiffLine
from tasks_app.web.rendering.tools import edit_lines, shown_input
from tasks_app.web.rendering.words import headline

_SHORT_LINES = 8
_SHORT_LENGTH = 800
_KEEP = 60_000
_KEEP_LINES = 3_000
# What stands in the page itself, so that a part of the log has a bounded size; more is fetched when opened.
_PROSE_IN_PAGE = 6_000
_MACHINE_IN_PAGE = 3_000
_EDIT_LINES_IN_PAGE = 60
_EXIT = re.compile(r"\AExit code (\d+)")

# What these tools give back is a file that was read or "done": of interest only to who opens the fold.
_QUIET_RESULTS = frozenset(
    {"Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "TodoWrite", "LS", "AskUserQuestion"}
)
_READING = frozenset({"Read", "LS"})

#: The agent's bookkeeping says nothing to people; it is in the raw log.
UNSEEN = frozenset({EventKind.SYSTEM, EventKind.UNKNOWN})


@dataclass(frozen=True)
class Output:
    """Truncated output of a program; `folded` if it is long.

    `fetched`: too long to stand in the page at all before somebody opens it. `cut`: characters that only the
    logs have.
    """

    text: str
    lines: int
    folded: bool
    cut: int = 0
    fetched: bool = False

    @classmethod
    def from_text(cls, text: str, *, whole: bool = False) -> Output:
        text = text.strip("\n")
        lines = text.count("\n") + 1 if text else 0
        cut = max(0, len(text) - _KEEP)
        if whole:
            return cls(text[:_KEEP], lines, False, cut)
        folded = lines > _SHORT_LINES or len(text) > _SHORT_LENGTH
        if len(text) > _MACHINE_IN_PAGE:
            return cls("", lines, folded, cut, fetched=True)
        return cls(text, lines, folded, cut)


@dataclass(frozen=True)
class Prose:
    """Text of the agent; `more` characters are loaded on request."""

    text: str
    more: int = 0

    @classmethod
    def from_text(cls, text: str, *, whole: bool = False) -> Prose:
        if whole or len(text) <= _PROSE_IN_PAGE:
            return cls(text)
        return cls(text[:_PROSE_IN_PAGE], len(text) - _PROSE_IN_PAGE)


@dataclass(frozen=True)
class Call:
    """A tool call: a summary, details, and the result when there is one.

    `added` and `removed` count the lines of an edit. `fetched`: see Output.
    """

    id: str
    name: str
    summary: str
    input: str
    edit: list[DiffLine]
    quiet: bool
    added: int = 0
    removed: int = 0
    fetched: bool = False


@dataclass
class Entry:
    """One entry of the log. Which fields are filled depends on the kind."""

    id: int
    kind: str
    at: datetime
    payload: dict[str, Any]
    run: Run
    starts_run: bool = False
    call: Call | None = None
    output: Output | None = None
    prose: Prose | None = None
    results: list[Entry] = field(default_factory=list)
    #: The call of a result that stands alone, in one line.
    of_call: str = ""
    #: What became of a call that was not made in its run, such as “waits for approval”.
    decision: str = ""
    #: What was said in reviews between the event before it and this one.
    remarks: list[Remark] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        failed = self.kind == EventKind.ERROR or (self.payload.get("is_error") and not self.turned_down)
        if self.kind == EventKind.CHECK:
            failed = not self.payload.get("passed")
        return bool(failed) or any(result.failed for result in self.results)

    @property
    def asked(self) -> list[str]:
        """The text of each question; of one beside its command only the sentence that asks."""
        items = [_dict(item) for item in _list(self.payload.get("items"))]
        texts = [str(item.get("question", "")) for item in items] or [str(self.payload.get("question", ""))]
        if any(_dict(one).get("kind") == "command" for one in _list(self.payload.get("evidence"))):
            texts = [parts_of_question(text).asked for text in texts]
        return texts

    @property
    def answers(self) -> list[tuple[str, str]]:
        """Each question of a card with several, in short, and its answer."""
        pairs = [pair for pair in _list(self.payload.get("answers")) if isinstance(pair, list | tuple)]
        return [(headline(str(pair[0])), str(pair[-1])) for pair in pairs if pair]

    @property
    def kind_name(self) -> str:
        """The name of the kind of question, such as “Plan”."""
        return KIND_NAMES[str(self.payload.get("kind") or QuestionKind.CLARIFICATION)]

    @property
    def said_outcome(self) -> str:
        """The outcome’s label if the question was not answered, such as “Sent back” or “Skipped”."""
        said = str(self.payload.get("outcome") or "Answered")
        return {"Answered": "", "Dismissed": "Skipped"}.get(said, said)

    @property
    def end_of_run(self) -> str:
        """The sentence of a result, such as “Run ended after 3 turns.”"""
        words, turns = ["Run ended"], self.payload.get("num_turns")
        if turns:
            words.append(f"after {counted(turns, 'turn')}")
        if self.payload.get("stop_reason") == "tool_deferred":
            words.append("at a call that waits")
        return f"{' '.join(words)}."

    @property
    def turned_down(self) -> str:
        """The refusal of the call, as in “sent back by Ann”; empty without one."""
        return str(self.payload.get("turned_down", ""))

    @property
    def outcome(self) -> str:
        """The outcome of a call, for its summary."""
        if self.decision:
            return self.decision
        if self.results:
            reads = self.call is not None and self.call.name in _READING
            shown = [one for one in self.results if one.always_shows_outcome or reads]
            return ", ".join(one.outcome for one in shown if one.outcome)
        if self.kind != EventKind.TOOL_RESULT or self.output is None:
            return ""
        if self.turned_down:
            return self.turned_down
        if self.failed:
            text = str(self.payload.get("text", ""))
            if code := _EXIT.match(text):
                return f"exit {code[1]}"
            return "refused" if was_refused(text) else "failed"
        return counted(self.output.lines, "line")

    @property
    def always_shows_outcome(self) -> bool:
        """Return whether the outcome is always shown in the call's summary."""
        return self.failed or bool(self.turned_down)


def entries_of(
    events: Iterable[Event],
    *,
    last_run: int | None = None,
    earlier_calls: Iterable[Event] = (),
    decisions: Mapping[str, str] | None = None,
) -> list[Entry]:
    """Return the entries of events in order, without UNSEEN kinds. A result joins its call in the same run.

    `last_run` is the run of the event before them: where the run changes, the entry says so. A result of one
    of the `earlier_calls`, or of a call of an earlier run, names its call. `decisions`: see `Entry.decision`,
    by the ids of the calls.
    """
    entries: list[Entry] = []
    summaries = {
        str(event.payload.get("id")): event_summary(event)
        for event in earlier_calls
        if event.kind == EventKind.TOOL_USE
    }
    calls: dict[str, Entry] = {}
    for event in events:
        if event.kind in UNSEEN:
            continue
        entry = entry_of(event)
        entry.starts_run = event.run_id != last_run
        last_run = event.run_id
        call_id = str(event.payload.get("tool_use_id"))
        if event.kind == EventKind.TOOL_RESULT:
            owner = calls.get(call_id)
            if owner is not None and owner.run.pk == event.run_id:
                owner.results.append(entry)
                continue
        entry.of_call = summaries.get(call_id, "")
        if entry.call is not None:
            calls[entry.call.id] = entry
            summaries[entry.call.id] = entry.call.summary
            entry.decision = (decisions or {}).get(entry.call.id, "")
        entries.append(entry)
    return entries


def event_summary(event: Event) -> str:
    """Return an event in one line, for lists of current events; empty for what people do not see."""
    payload = event.payload
    if event.kind in UNSEEN:
        return ""
    if event.kind == EventKind.TOOL_USE:
        return summarise(str(payload.get("name", "")), _dict(payload.get("input")))
    if event.kind == EventKind.CHECK:
        verdict = "passed" if payload.get("passed") else "failed"
        return str(payload.get("problem") or f"check {payload.get('check', '')}: {verdict}")
    text = str(payload.get("text") or payload.get("question") or "")
    first, _, rest = strip_controls(text).strip().partition("\n")
    more = len(_list(payload.get("items"))) - 1
    if len(first) > 200:
        first = first[:200].rpartition(" ")[0] or first[:200]
        rest = "cut"
    if rest:
        first += " …"
    if more > 0:
        first += f" and {more} more"
    return first


def entry_of(event: Event, *, whole: bool = False) -> Entry:
    """Return the entry of one event; `whole` if it is shown completely."""
    entry = Entry(event.pk, event.kind, event.at, _dict(event.payload), event.run)
    text = str(entry.payload.get("text", ""))
    if entry.said_outcome:
        text = str(entry.payload.get("notes", ""))
    if event.kind == EventKind.TOOL_USE:
        entry.call = _call(entry.payload, whole=whole)
    elif event.kind == EventKind.TOOL_RESULT:
        entry.output = Output.from_text(without_hook_name(text), whole=whole)
    elif event.kind == EventKind.CHECK:
        entry.output = Output.from_text(str(entry.payload.get("output", "")), whole=whole)
    else:
        entry.prose = Prose.from_text(text, whole=whole)
    return entry


def _call(payload: dict[str, Any], *, whole: bool) -> Call:
    name, given = str(payload.get("name", "")), _dict(payload.get("input"))
    edit = edit_lines(name, given)
    shown = shown_input(name, given)
    characters = sum(len(line.text) for line in edit) if edit else len(shown)
    fetched = not whole and (len(edit) > _EDIT_LINES_IN_PAGE or characters > _MACHINE_IN_PAGE)
    call = Call(
        id=str(payload.get("id", "")),
        name=name,
        summary=summarise(name, given),
        input=shown[:_KEEP],
        edit=edit[:_KEEP_LINES],
        quiet=name in _QUIET_RESULTS,
        added=sum(line.kind == "add" for line in edit),
        removed=sum(line.kind == "del" for line in edit),
    )
    if fetched:
        return replace(call, input="", edit=[], fetched=True)
    return call


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Remark:
    """A request for changes, a `reply` of an agent, or what somebody did to the task.

    `key` is the same wherever it is shown.
    """

    key: str
    at: datetime
    review: Review | None = None
    reply: ThreadComment | None = None
    deed: TaskDeed | None = None


def change_requests_of(task: Task) -> QuerySet[Review]:
    return task.reviews.sent().filter(verdict=ReviewVerdict.REQUEST_CHANGES)


def remarks_of(task: Task, *, runs: Collection[int]) -> list[Remark]:
    """Return the requests for changes of the task and the replies of these runs' agents, in order."""
    reviews = change_requests_of(task).select_related("author").prefetch_related("threads__comments")
    remarks = [Remark(f"review-{one.pk}", one.sent_at, review=one) for one in reviews if one.sent_at]
    if runs:
        replies = ThreadComment.objects.filter(run__in=runs).select_related("thread", "run__step")
        remarks += [Remark(f"reply-{one.pk}", one.at, reply=one) for one in replies]
    return sorted(remarks, key=lambda one: one.at)
