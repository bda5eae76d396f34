"""Entries of the audit log as sentences: what was done to what, with what the details say of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks_app.core.amounts import counted
from tasks_app.core.text import shortened
from tasks_app.core.types import ALLOW_CALL, ALLOW_COMMAND, REVIEW_PLAN

#: Names of changed fields that an entry lists; characters of a value.
_MOST_NAMES, _MOST_VALUE = 4, 80
_FIELDS = {
    "email": "e-mail address",
    "linked": "linked logins",
    "unlinked": "linked logins",
    "max_cost_usd": "cost limit",
    "monthly_budget_usd": "monthly budget",
    "webhook_secret": "webhook secret",
    "ladder_may_end": "right of rules to end questions",
    "programs_decide": "right of programs to decide",
    "ask": "rules on whom to ask",
    "on_call": "on-call calendar",
}
_VERDICTS = {"approve": "approved", "request_changes": "requested changes to", "comment": "commented on"}


@dataclass(frozen=True)
class Sentence:
    """What follows the name of who acted: “retried the task”, “Paint it”, “from step “do””."""

    before: str
    subject: str = ""
    after: str = ""

    @property
    def gap(self) -> str:
        """What stands before `after`."""
        if not self.after or self.after.startswith(","):
            return ""
        return " "

    def __str__(self) -> str:
        return f"{self.before} {self.subject}".strip() + self.gap + self.after


Detail = Mapping[str, Any]


def sentence(action: str, label: str, subject: str, *, project: str, detail: Any) -> Sentence:
    """Return the sentence of an entry: by default the label of its action and its subject."""
    subject = " ".join(subject.split())
    found = detail if isinstance(detail, Mapping) else {}
    if make := _MAKERS.get(action):
        return make(label, subject, found)
    before, after = _WORDS.get(action, ("", ""))
    values = {name: _value(value) for name, value in found.items() if value} | {"project": project}
    if not values.keys() >= set(re.findall(r"{(\w+)}", before + after)):
        return Sentence(label, subject)
    if action == "role_given" and "before" in values:
        after += ", before {before}"
    return Sentence(before.format_map(values) or label, subject, after.format_map(values))


def _question(label: str, subject: str, detail: Detail) -> Sentence:
    for words, what in ((ALLOW_COMMAND, "the command"), (ALLOW_CALL, "the call")):
        if subject.startswith(words) and (call := subject.removeprefix(words).strip()):
            if label == "asked":
                label = "asked to make"
            return Sentence(f"{label} {what}", call)
    if subject == REVIEW_PLAN:
        return Sentence("asked for a review of" if label == "asked" else label, "a plan")
    if asked := detail.get("to"):
        return Sentence(label, f"“{subject}”", f"to {asked}" if label == "handed over" else f"({asked})")
    if rule := detail.get("rule"):
        return Sentence(label, f"“{subject}”", f"by the rule “{rule}”")
    if earlier := detail.get("taken_from"):
        return Sentence(label, f"“{subject}”", f"with the answer to question {earlier}")
    return Sentence(label, f"“{subject}”")


def _plan(label: str, subject: str, detail: Detail) -> Sentence:
    """Entries of earlier versions do not name the task."""
    if subject == REVIEW_PLAN:
        return Sentence(label.removesuffix(" the plan of"), "a plan")
    return Sentence(label, subject)


def _changed(label: str, subject: str, detail: Detail) -> Sentence:
    """Name the fields, and of a single one also the values before and after."""
    for name, verb in (("made", "created"), ("removed", "removed")):
        if isinstance(detail.get(name), str):
            return Sentence(f"{verb} the {detail[name]}", subject)
    changed = detail.get("changed", detail)
    if isinstance(changed, list):
        changed = dict.fromkeys(changed)
    if not changed or not isinstance(changed, Mapping):
        return Sentence(label, subject)
    names = [_FIELDS.get(str(name), str(name).replace("_", " ")) for name in changed]
    if len(names) > _MOST_NAMES:
        named = f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    else:
        named = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    whose = label.removeprefix("changed the settings ").removeprefix("changed ").removeprefix("the account ")
    if not whose.startswith("of"):
        whose = f"of {whose}"
    value, after = next(iter(changed.values())), ""
    if len(changed) == 1 and isinstance(value, list) and len(value) == 2 and "linked" not in str(names[0]):
        after = f"from {_value(value[0])} to {_value(value[1])}"
    return Sentence(f"changed the {named} {whose}", subject, after)


def _taken_back(label: str, subject: str, detail: Detail) -> Sentence:
    if rule := detail.get("rule"):
        return Sentence(f"undid the rule “{rule}” at", f"“{subject}”")
    return _question(label, subject, detail)


def _notifications(label: str, subject: str, detail: Detail) -> Sentence:
    for name, words in (("working_hours", "working hours"), ("absence_calendar", "calendar of absences")):
        if name in detail:
            return Sentence(f"changed the {words} of", subject)
    return Sentence(label, subject)


def _value(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shortened(" ".join(str(value).split()), _MOST_VALUE)


def _retried(label: str, subject: str, detail: Detail) -> Sentence:
    step = detail.get("step")
    if not step:
        return Sentence(label, subject)
    files = "put back" if detail.get("put_back") else "kept"
    return Sentence(label, subject, f"from step “{step}”, with the files {files}")


def _reviewed(label: str, subject: str, detail: Detail) -> Sentence:
    after = ""
    if threads := detail.get("threads"):
        after = f"with {counted(threads, 'comment')}"
    return Sentence(_VERDICTS.get(str(detail.get("verdict")), label), subject, after)


_MAKERS: dict[str, Callable[[str, str, Detail], Sentence]] = {
    **dict.fromkeys(("asked", "answered", "dismissed", "unanswered", "approved", "denied"), _question),
    "answer_taken_back": _taken_back,
    **dict.fromkeys(("handed_over", "opinion_asked", "asking_taken_back"), _question),
    **dict.fromkeys(("task_changed", "settings_changed", "account_changed"), _changed),
    **dict.fromkeys(("plan_approved", "plan_sent_back"), _plan),
    "task_retried": _retried,
    "notifications_changed": _notifications,
    "reviewed": _reviewed,
}
#: What stands before the subject (the label by default) and behind it. Without one of these details, which
#: entries of earlier versions may lack, the label alone is said.
_WORDS = {
    "account_made": ("", "through {through}"),
    "decision_retired": ("", ", because: {reason}"),
    "decision_superseded": ("", "by D-{replaced_by}"),
    "exported": ("", "as {form}"),
    "invited": ("", "to {project} as {role}"),
    "logged_in": ("", "through {through}"),
    "login_failed": ("", ", at the {why}"),
    "password_changed": ("", "through {through}"),
    "project_removed": ("", ", because: {reason}"),
    "pull_request_ended": ("{state} pull request {number} of", ""),
    "pull_request_opened": ("opened pull request {number} of", ""),
    "refused": ("was refused access to", ""),
    "role_given": ("made", "{role} of {project}"),
    "role_taken": ("removed", "from {project}, where they were {role}"),
    "thread_answered": ("replied in thread {thread} of", ""),
    "thread_reopened": ("reopened thread {thread} of", ""),
    "thread_resolved": ("resolved thread {thread} of", ""),
    "token_revoked": ("", "of {owner}"),
}
