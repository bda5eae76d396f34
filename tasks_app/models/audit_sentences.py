"""Entries of the audit log as sentences: what was done to what, with what the details say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
        return "" if not self.after or self.after.startswith(",") else " "

    def __str__(self) -> str:
        return f"{self.before} {self.subject}".strip() + self.gap + self.after


Detail = Mapping[str, Any]


def sentence(action: str, label: str, subject: str, *, project: str, detail: Any) -> Sentence:
    """Return the sentence of an entry: by default the label of its action and its subject."""
    subject = " ".join(subject.split())
    found, make = detail if isinstance(detail, Mapping) else {}, _MAKERS.get(action)
    if make is None or (action in _NEEDED and not found.get(_NEEDED[action])):
        return Sentence(label, subject)
    return make(label, subject, project, found)


def _question(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    for words, what in ((ALLOW_COMMAND, "the command"), (ALLOW_CALL, "the call")):
        if subject.startswith(words) and (call := subject.removeprefix(words).strip()):
            return Sentence(f"{'asked to make' if label == 'asked' else label} {what}", call)
    if subject == REVIEW_PLAN:
        return Sentence("asked for a review of" if label == "asked" else label, "a plan")
    earlier = detail.get("taken_from")
    return Sentence(label, f"“{subject}”", f"with the answer to question {earlier}" if earlier else "")


def _plan(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    """Entries of earlier versions do not name the task."""
    return (
        Sentence(label.removesuffix(" the plan of"), "a plan")
        if subject == REVIEW_PLAN
        else Sentence(label, subject)
    )


def _changed(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    """Name the fields, and of a single one also the values before and after."""
    for name, verb in (("made", "created"), ("removed", "removed")):
        if isinstance(detail.get(name), str):
            return Sentence(f"{verb} the {detail[name]}", subject)
    found = detail.get("changed", detail)
    changed = found if isinstance(found, Mapping) else dict.fromkeys(found) if isinstance(found, list) else {}
    if not changed:
        return Sentence(label, subject)
    names = [_FIELDS.get(str(name), str(name).replace("_", " ")) for name in changed]
    named = _listed(names)
    whose = label.removeprefix("changed the settings ").removeprefix("changed ").removeprefix("the account ")
    whose = whose if whose.startswith("of") else f"of {whose}"
    value, after = next(iter(changed.values())), ""
    if len(changed) == 1 and isinstance(value, list) and len(value) == 2 and "linked" not in str(names[0]):
        after = f"from {_value(value[0])} to {_value(value[1])}"
    return Sentence(f"changed the {named} {whose}", subject, after)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _value(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    text = "yes" if value is True else "no" if value is False else " ".join(str(value).split())
    return text if len(text) <= _MOST_VALUE else f"{text[:_MOST_VALUE]}…"


def _retried(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    files, step = "put back" if detail.get("put_back") else "kept", detail.get("step")
    return Sentence(label, subject, f"from step “{step}”, with the files {files}" if step else "")


def _reviewed(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    verdict, threads = str(detail.get("verdict")), detail.get("threads")
    after = f"with {threads} comment{'' if threads == 1 else 's'}" if threads else ""
    return Sentence(_VERDICTS.get(verdict, label), subject, after)


def _thread(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    return Sentence(label.replace("a thread", f"thread {detail.get('thread')}"), subject)


def _role_given(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    before = f", before {detail['before']}" if detail.get("before") else ""
    return Sentence("made", subject, f"{detail.get('role')} of {project}{before}")


def _role_taken(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    return Sentence("removed", subject, f"from {project}, where they were {detail.get('role')}")


def _invited(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    return Sentence(label, subject, f"to {project} as {detail.get('role')}")


def _pull_request(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    state = str(detail.get("state") or "")
    verb = f"{state} " if state in ("merged", "closed") else "opened "
    return Sentence(f"{verb}pull request {detail.get('number')} of", subject)


def _superseded(label: str, subject: str, project: str, detail: Detail) -> Sentence:
    new = detail.get("replaced_by")
    return Sentence(label, subject, f"by D-{new}" if new else "")


def _then(words: str) -> Callable[[str, str, str, Detail], Sentence]:
    """Return a maker that adds `words`, in which `{name}` is a detail, if there is that detail."""
    name = words[words.index("{") + 1 : words.index("}")]

    def make(label: str, subject: str, project: str, detail: Detail) -> Sentence:
        value = detail.get(name)
        return Sentence(label, subject, words.replace(f"{{{name}}}", _value(value)) if value else "")

    return make


_MAKERS: dict[str, Callable[[str, str, str, Detail], Sentence]] = {
    **dict.fromkeys(("asked", "answered", "dismissed", "approved", "denied", "answer_taken_back"), _question),
    **dict.fromkeys(("task_changed", "settings_changed", "account_changed"), _changed),
    **dict.fromkeys(("thread_answered", "thread_resolved", "thread_reopened"), _thread),
    **dict.fromkeys(("pull_request_opened", "pull_request_ended"), _pull_request),
    **dict.fromkeys(("logged_in", "account_made", "password_changed"), _then("through {through}")),
    **dict.fromkeys(("decision_retired", "project_removed"), _then(", because: {reason}")),
    **dict.fromkeys(("plan_approved", "plan_sent_back"), _plan),
    "task_retried": _retried,
    "reviewed": _reviewed,
    "role_given": _role_given,
    "role_taken": _role_taken,
    "invited": _invited,
    "decision_superseded": _superseded,
    "token_revoked": _then("of {owner}"),
    "exported": _then("as {form}"),
    "login_failed": _then(", at the {why}"),
    "refused": lambda label, subject, project, detail: Sentence("was refused access to", subject),
}
#: Details without which the label alone is said: entries of earlier versions may lack them.
_NEEDED = {
    **dict.fromkeys(("thread_answered", "thread_resolved", "thread_reopened"), "thread"),
    **dict.fromkeys(("pull_request_opened", "pull_request_ended"), "number"),
    **dict.fromkeys(("role_given", "role_taken", "invited"), "role"),
}
