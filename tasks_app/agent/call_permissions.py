"""Turning humans' answers into permissions: what the gate does with the call at which the agent waits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks_app.agent.gate.hook import only_asks
from tasks_app.agent.port import CallPermission
from tasks_app.core.types import Ask
from tasks_app.prompting.escaping import escaped_line
from tasks_app.prompting.no_answer import DECIDE_YOURSELF, taken_by_rule
from tasks_app.sandbox import UNCHANGED, Placement

#: An answer longer than this is handed over as a file, with its beginning as preview: the agent's own tools
#: cut results of more than about 30,000 characters down to a 2 kB preview.
INLINE_LIMIT = 20_000
INLINE_HEAD = 4_000


@dataclass(frozen=True)
class AnswersFolder:
    """The folder at `path` for long answers, which the agent sees as `placement` says."""

    path: Path
    placement: Placement = UNCHANGED

    def write(self, name: str, text: str) -> Path:
        """Write a file and return its path as the agent sees it."""
        (self.path / name).write_text(text, encoding="utf-8")
        return self.placement.inside(self.path) / name


@dataclass(frozen=True)
class GivenAnswer:
    """A human's answer to one ask: `answers` maps each item's question to the text.

    `ended` says that a rule ended the ask without an answer; `answers` are then what the agent recommended.
    `by` names who or what settled it, such as a decision; `person` is the user who answered, empty if that is
    not known or nobody did.
    """

    ask: Ask
    answers: Mapping[str, str]
    notes: str = ""
    name: str = "answer"
    by: str = "a human"
    person: str = ""
    dismissed: bool = False
    ended: str = ""
    approved: bool = False

    @property
    def texts(self) -> Mapping[str, str]:
        """The text for each item: the answer, or that there is none and what holds instead."""
        if self.ended:
            taken = {
                item.question: taken_by_rule(self.answers.get(item.question, "")) for item in self.ask.items
            }
            return {question: f"[From the portal: {self.ended} {said}]" for question, said in taken.items()}
        if not self.dismissed:
            return self.answers
        dismissal = f"[No answer: {self.by} dismissed this question. {DECIDE_YOURSELF}]"
        return {item.question: dismissal for item in self.ask.items}

    @property
    def who_answered(self) -> str:
        """The portal's note on who answered a question; empty if that is not known, or nobody answered."""
        if not self.person or self.dismissed or self.ended:
            return ""
        return f"[From the portal: {escaped_line(self.person)} answered.]"


_NO_NOTES = "(none)"
#: The reason for refusing a call that was made together with others that also wait for a human.
SET_ASIDE = (
    "This call was not made, and nobody was asked to approve it, because in the same message you made other "
    "calls that wait for a human."
)
_ONE_BY_ONE = "Make each call that needs approval in a message of its own, the first one first."
#: Calls that a refusal names.
_MAX_NAMED = 5
#: The reason for refusing an approved call if its worker died while it was being made.
UNCERTAIN = (
    "A human approved this call, but the process died while it was being made: it may have been made, in "
    "part or as a whole. Look at how things stand. If it is still to be made, make it again; a human is "
    "asked again."
)


def refuse_as_set_aside(
    others: Sequence[GivenAnswer],
    *,
    folder: AnswersFolder,
    not_made: Sequence[str] = (),
    note: str = "",
) -> CallPermission:
    """Refuse a waiting call that no human was asked about. Answers to `others` are added to the reason.

    `not_made` describes further calls of the message that needed approval: the session does not hold them.
    """
    said = [SET_ASIDE]
    if not_made:
        said.append(
            f"Other calls of that message that need approval were not made either: {_named(not_made)}."
        )
    if others:
        said.append("What you asked in it was asked, and the reply stands below.")
    said.append(_ONE_BY_ONE)
    extra = _inline_or_file(_additions(others, note), folder=folder, name="set-aside")
    return CallPermission(False, reason=" ".join(said) + extra)


def not_made_note(not_made: Sequence[str]) -> str:
    """Return the portal's note on calls of the answered message that the session does not hold."""
    if not not_made:
        return ""
    return (
        "[From the portal: in the same message you made calls that need approval. They were not made, and "
        f"nobody was asked to approve them: {_named(not_made)}. {_ONE_BY_ONE}]"
    )


def _named(calls: Sequence[str]) -> str:
    more = f"; and {len(calls) - _MAX_NAMED} more" if len(calls) > _MAX_NAMED else ""
    return "; ".join(calls[:_MAX_NAMED]) + more


def refuse_as_uncertain(note: str = "") -> CallPermission:
    """Refuse an approved call that may have been made already: an approval allows a call only once."""
    return CallPermission(False, reason=f"{UNCERTAIN}\n\n{note}".strip())


def permission_for(
    given: GivenAnswer, others: Sequence[GivenAnswer], *, folder: AnswersFolder, note: str = ""
) -> CallPermission:
    """Return the permission that gives the deferred call the human's answer as its result.

    The session does not hold the `others`, which were asked in the same message: of two asks it keeps only
    the last. So their answers are added, and below them the portal's own `note`; with `AskUserQuestion` the
    note stands beside the result, where it does not pass for words of the human, and so does who answered. A
    command prints the answer alone: it may be read by a program. Answers that are too long for a tool result
    are written to `folder`.
    """
    extra = _additions(others, note)
    if given.ask.kind != "clarification":
        return _verdict_permission(given, extra, folder)
    notes = given.notes
    if notes and len(given.texts) > 1:
        which = "both" if len(given.texts) == 2 else f"all {len(given.texts)}"
        notes = f"(on {which} questions) {notes}"
    if given.ask.way == "command":
        text = "\n".join(f"{question}\n{answer}\n" for question, answer in given.texts.items())
        if len(given.texts) == 1:
            text = next(iter(given.texts.values()))
        if notes:
            text += f"\n\nNotes from {escaped_line(given.person) or 'the human'}: {notes}"
        text += extra
        text = _inline_or_file(text, folder=folder, name=given.name)
        return _printing_permission(given, text, folder)
    answers = {
        question: _inline_or_file(answer, folder=folder, name=f"{given.name}-{number}")
        for number, (question, answer) in enumerate(given.texts.items(), start=1)
    }
    # The tool tells notes beside an answer, which so stays the option that was chosen, to the letter. They
    # are said once, before the other answers. Answers to questions of other calls stand at the end, on their
    # own lines, below a line that says so, so that they do not pass for a note on the last question.
    questions = list(answers)
    beside = {questions[0]: notes}
    if extra := _additions(others, ""):
        beside[questions[-1]] = f"{beside.get(questions[-1]) or _NO_NOTES}{extra}"
    updated: dict[str, Any] = {"questions": given.ask.tool_input.get("questions", []), "answers": answers}
    if annotations := {
        question: {"notes": _inline_or_file(text, folder=folder, name=f"{given.name}-notes-{number}")}
        for number, (question, text) in enumerate(beside.items(), start=1)
        if text
    }:
        updated["annotations"] = annotations
    beside_result = "\n\n".join(filter(None, [given.who_answered, note]))
    context = _inline_or_file(beside_result, folder=folder, name=f"{given.name}-portal")
    return CallPermission(True, updated, context=context)


def _verdict_permission(given: GivenAnswer, extra: str, folder: AnswersFolder) -> CallPermission:
    """Allow an approved call with the input that was shown. Refuse any other call with the human's reason."""
    notes = _inline_or_file(given.notes, folder=folder, name=given.name)
    if given.approved:
        changed: dict[str, Any] | None = None
        call = given.ask.items[0].question.partition("\n\n")[2] or "this call"
        if given.ask.kind == "plan":
            changed, call = {}, "the plan"
        said = f"[From the portal: {given.by} approved {call}.]"
        if notes:
            said = f"[From the portal: {given.by} approved {call} and remarks: {notes}]"
        return CallPermission(True, changed, for_input=given.ask.tool_input, context=said + extra)
    if given.ask.kind == "plan":
        reason = f"{given.by} sent the plan back: {notes}\n\nRevise the plan and call ExitPlanMode again."
    else:
        reason = (
            f"{given.by} denied this call: {notes}\n\nIt was not made. Do what these words say; if they name "
            "no other way, go on without it."
        )
    return CallPermission(False, reason=reason + extra)


def _printing_permission(given: GivenAnswer, text: str, folder: AnswersFolder) -> CallPermission:
    """Replace the command that asked by one that prints the answer. Nothing else of it is run."""
    if not only_asks(str(given.ask.tool_input.get("command", ""))):
        text += "\n\n(Nothing else of your command was run. Run it now if the answer allows it.)"
    path = folder.write(f"{given.name}.result.txt", text + "\n")
    updated = {**given.ask.tool_input, "command": f"cat -- {shlex.quote(str(path))}"}
    updated.pop("run_in_background", None)  # the result would be the number of a background command
    return CallPermission(True, updated)


def _additions(others: Sequence[GivenAnswer], note: str) -> str:
    """Return the answers to the other questions, then the portal's note."""
    added = [
        _addition(other, question, answer) for other in others for question, answer in other.texts.items()
    ]
    if note:
        added.append(f"\n\n{note}")
    return "".join(added)


def _addition(other: GivenAnswer, question: str, answer: str) -> str:
    said = "" if other.dismissed or other.ended else f"{escaped_line(other.person) or 'The human'} answered: "
    text = f"\n\nYou also asked: “{question}” {said}{answer}"
    # What the chosen option means: the session does not hold the question any more.
    options = [option for item in other.ask.items if item.question == question for option in item.options]
    if meant := next((option.description for option in options if option.label == answer), ""):
        text += f" (It means: {meant})"
    if other.notes:
        text += f" (Notes: {other.notes})"
    return text


def _inline_or_file(text: str, *, folder: AnswersFolder, name: str) -> str:
    """Return the text or, if it is too long, its beginning and the path of a file with all of it."""
    if len(text) <= INLINE_LIMIT:
        return text
    path = folder.write(f"{name}.txt", text)
    return (
        f"{text[:INLINE_HEAD]}\n\n[These are the first {INLINE_HEAD:,} of {len(text):,} characters of the "
        f"answer. The whole answer is in {path}; read all of it before you go on.]"
    )
