"""Recognising that the agent asks, whichever way, and turning an answer into the call's own result."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks_app.agent.gate.hook import questions_in
from tasks_app.agent.port import Decision
from tasks_app.core.types import Ask, AskItem, Option

#: An answer longer than this is handed over as a file, with its beginning: the agent's own tools cut
#: results of more than some 30,000 characters down to a 2 kB preview.
INLINE_LIMIT = 20_000
INLINE_HEAD = 4_000


def ask_from_call(tool_use_id: str, name: str, tool_input: Mapping[str, Any]) -> Ask | None:
    """The ask that a tool call makes, or None for an ordinary tool call."""
    if name == "AskUserQuestion":
        return Ask(tool_use_id, "AskUserQuestion", _items(tool_input), dict(tool_input))
    if name == "Bash":
        questions = questions_in(str(tool_input.get("command", "")))
        if questions:
            items = tuple(AskItem(question) for question in dict.fromkeys(questions))
            return Ask(tool_use_id, "command", items, dict(tool_input))
    return None


def _items(tool_input: Mapping[str, Any]) -> tuple[AskItem, ...]:
    """The items of an AskUserQuestion call; whatever the model wrote, at least one comes out."""
    written = tool_input.get("questions")
    questions = [item for item in written if isinstance(item, dict)] if isinstance(written, list) else []
    items = [_item(item) for item in questions]
    return tuple(items) or (AskItem(json.dumps(tool_input, ensure_ascii=False)[:2000]),)


def _item(written: Mapping[str, Any]) -> AskItem:
    options = written.get("options")
    return AskItem(
        question=str(written.get("question") or written.get("header") or "(no question was given)"),
        header=str(written.get("header") or ""),
        options=tuple(_option(option) for option in options) if isinstance(options, list) else (),
        multi_select=written.get("multiSelect") is True,
    )


def _option(written: Any) -> Option:
    if not isinstance(written, dict):
        return Option(str(written))
    return Option(*(str(written.get(name) or "") for name in ("label", "description", "preview")))


@dataclass(frozen=True)
class GivenAnswer:
    """A human's answer to one ask: `answers` maps each item's question to the text."""

    ask: Ask
    answers: Mapping[str, str]
    notes: str = ""
    name: str = "answer"
    by: str = "a human"
    dismissed: bool = False
    approved: bool = False

    @property
    def told(self) -> Mapping[str, str]:
        """What the agent is told for each item; of a dismissed question, that nobody answers it."""
        return (
            {item.question: dismissal(self.by) for item in self.ask.items} if self.dismissed else self.answers
        )


def dismissal(by: str) -> str:
    """What an agent is told in place of an answer."""
    return (
        f"[No answer: {by} dismissed this question. Decide it by your own best judgement, and say in your "
        "closing words what you assumed.]"
    )


#: What a call is refused with that was made beside others that wait for a human as well.
SET_ASIDE = (
    "This call was not made, and nobody was asked to approve it, because in the same message you made other "
    "calls that wait for a human. Those were not made either. Make each call that needs approval in a "
    "message of its own, the first one first."
)
#: What an approved call is refused with after its worker died while it was being made.
UNCERTAIN = (
    "A human approved this call, but the process died while it was being made: it may have been made, in "
    "part or as a whole. Look at how things stand. If it is still to be made, make it again; a human is "
    "asked again."
)


def refuse_as_set_aside(others: Sequence[GivenAnswer], *, folder: Path, note: str = "") -> Decision:
    """For a waiting call that nobody was asked about; answers to what was asked beside it ride along."""
    extra = "".join(_aside(other) for other in others) + (f"\n\n{note}" if note else "")
    return Decision(False, reason=SET_ASIDE + _bounded(extra, folder=folder, name="set-aside"))


def refuse_as_uncertain(note: str = "") -> Decision:
    """For an approved call that may have been made already: an approval is for one call, made once."""
    return Decision(False, reason=f"{UNCERTAIN}\n\n{note}".strip())


def decision_for(
    given: GivenAnswer, others: Sequence[GivenAnswer], *, folder: Path, note: str = ""
) -> Decision:
    """What lets the deferred call end with the human's answer as its result.

    `others` were asked beside it but are not in the session (of two asks in one message only the last
    is kept), so their answers ride along. `note` of the portal itself stands below them. Answers too long for
    a tool result are written to `folder`.
    """
    extra = "".join(_aside(other) for other in others) + (f"\n\n{note}" if note else "")
    if given.ask.kind != "clarification":
        return _verdict(given, extra, folder)
    if given.notes:
        extra = f"\n\nNotes from the human: {given.notes}{extra}"
    if given.ask.way == "command":
        text = _bounded(_joined(given) + extra, folder=folder, name=given.name)
        return _printed(given, text, folder)
    answers = {
        question: _bounded(answer, folder=folder, name=f"{given.name}-{number}")
        for number, (question, answer) in enumerate(given.told.items(), start=1)
    }
    last = list(answers)[-1]
    answers[last] += _bounded(extra, folder=folder, name=f"{given.name}-notes")
    return Decision(True, {"questions": given.ask.tool_input.get("questions", []), "answers": answers})


def _verdict(given: GivenAnswer, extra: str, folder: Path) -> Decision:
    """Approved, the call is made with the input that was shown; denied, its result is the reason."""
    notes = _bounded(given.notes, folder=folder, name=given.name)
    if given.approved:
        said = f"{given.by} approved this and remarks: {notes}" if notes else ""
        changed: dict[str, Any] | None = {} if given.ask.kind == "plan" else None
        return Decision(True, changed, for_input=given.ask.tool_input, context=f"{said}{extra}".strip())
    if given.ask.kind == "plan":
        reason = f"{given.by} sent the plan back: {notes}\n\nRevise the plan and call ExitPlanMode again."
    else:
        reason = f"{given.by} denied this call: {notes}\n\nIt was not made. Go on without it."
    return Decision(False, reason=reason + extra)


def _printed(given: GivenAnswer, text: str, folder: Path) -> Decision:
    """A command that prints the answer, in place of the one that asked. Nothing else of it is run."""
    rest = (
        ""
        if _is_plain(given)
        else "\n\n(Nothing else of your command was run. Run it now if the answer allows it.)"
    )
    path = folder / f"{given.name}.result.txt"
    path.write_text(text + rest + "\n", encoding="utf-8")
    updated = {**given.ask.tool_input, "command": f"cat -- {shlex.quote(str(path))}"}
    return Decision(True, updated)


def _is_plain(given: GivenAnswer) -> bool:
    """Whether the command did nothing but ask."""
    try:
        words = shlex.split(str(given.ask.tool_input.get("command", "")))
    except ValueError:
        return False
    plain = re.compile(r"[;&|<>()\n]")
    outer = [word for word in words if word in {";", "&&", "||", "|", "&"} or plain.fullmatch(word)]
    return words[:2] == ["cat-herder", "ask"] and not outer and len(words) == 3


def _joined(given: GivenAnswer) -> str:
    if len(given.told) == 1:
        return next(iter(given.told.values()))
    return "\n".join(f"{question}\n{answer}\n" for question, answer in given.told.items())


def _aside(other: GivenAnswer) -> str:
    notes = f" (Notes: {other.notes})" if other.notes else ""
    return "".join(
        f"\n\nYou also asked: “{question}” {'' if other.dismissed else 'The human answered: '}{answer}{notes}"
        for question, answer in other.told.items()
    )


def _bounded(text: str, *, folder: Path, name: str) -> str:
    if len(text) <= INLINE_LIMIT:
        return text
    path = folder / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    return (
        f"{text[:INLINE_HEAD]}\n\n[These are the first {INLINE_HEAD:,} of {len(text):,} characters of the "
        f"answer. The whole answer is in {path}; read all of it before you go on.]"
    )
