"""The section of a prompt with the decisions of the project (SPEC D3).

It comes late in the prompt, so that a new decision leaves the beginning, which providers cache, as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks_app.core.asked_items import sentence_with_beginning
from tasks_app.core.types import KnownDecision
from tasks_app.prompting.escaping import escape, escaped_line

#: The beginning of the line in which an agent names the decisions that it followed.
FOLLOWED = "Decisions followed:"
#: Marks of Markdown around that line or a label.
MARKS = " \t>*_`-."

_KEEP_TO_THEM = (
    "People of this project have decided this. Keep to it. Where two of them differ, the first one counts.\n"
    "What humans have answered or requested in this task itself, also in a review, goes before it."
)
_NEED_NOT_ASK = "What is decided here you need not ask again."
_UNFIT = """\
One that has nothing to do with your task needs nothing from you. If one stands in the way of your task, or is
no longer true, do not work around it in silence: run

    cat-herder unfit D-901 "what it stands in the way of, or what is different now"
"""
_OR_ASK = """\
and, if you cannot go on without it, ask. In a question about a decision write out what the decision says and
what you want to know, and name its label as well: "Does D-901 still hold?" alone says nothing to somebody
who does not know D-901."""
_OR_SAY = "and say in your last message what you did instead."
_NAME_THEM = f"""\
End your last message with one line that names the decisions that you followed, in this form:

    {FOLLOWED} D-901, D-902

Write `{FOLLOWED} none` if you followed none."""
_ASKING = "\n".join([_KEEP_TO_THEM, f"{_NEED_NOT_ASK}\n{_UNFIT}", _OR_ASK, _NAME_THEM])
_NOT_ASKING = "\n".join([_KEEP_TO_THEM, _UNFIT, _OR_SAY, _NAME_THEM])
#: Characters of a token, about; prompts need no exact count.
_CHARACTERS = 4
#: Characters of one decision that a prompt shows, so that a long one leaves room for others.
_STATEMENT, _QUESTION, _REASON, _WHERE = 1_000, 300, 400, 200
#: And of one that a result tells as news, whatever it is about.
_NEWS = 200


def without_followed_line(text: str) -> str:
    """Return an agent's last message without the line that names decisions, which is for the portal."""
    lines = text.rstrip().split("\n")
    named = [
        number for number, line in enumerate(lines) if line.strip(MARKS).lower().startswith(FOLLOWED.lower())
    ]
    if named:
        del lines[named[-1]]
    return "\n".join(lines).strip()


def decisions_text(decisions: Sequence[KnownDecision], *, more: int = 0, may_ask: bool) -> str:
    """Return the body of the section. `more` decisions are not listed.

    If the agent may not ask, no word says that it could (H13).
    """
    parts = [_ASKING if may_ask else _NOT_ASKING, "\n".join(entry(one) for one in decisions)]
    if more:
        which = str(more)
        if decisions:
            which = f"{more} more"
        parts.append(f'{which} are not listed here: `cat-herder decisions "words"` finds them.')
    return "\n\n".join(filter(None, parts))


def news_entry(decision: KnownDecision) -> str:
    """Return the beginning of a new decision and of its question in one line, with how to read the rest.

    A statement such as “False: nothing changes” says nothing without its question.
    """
    where = _beginning(decision.where, _NEWS, "…")
    source = ", ".join(filter(None, (decision.decided_by, where, *_others(decision))))
    said = f"* {decision.label} ({escaped_line(source)}): {_shown(decision, decision.statement, _NEWS)}"
    if decision.exceptions:
        said += f" Except: {escaped_line(_beginning(decision.exceptions, _NEWS, '…'))}."
    if decision.question:
        said += f" Question: {_question(decision.question, _NEWS)}"
    return said


def entry(decision: KnownDecision) -> str:
    """Return the lines of one decision: `D-17 (Ada, 3 May 2026, src/**): …`, its question and its reason.

    Of long texts the beginning is shown, with how to read the rest.
    """
    sources = [
        decision.decided_by, decision.day, _beginning(decision.where, _WHERE, "…"), *_others(decision),
    ]  # fmt: skip
    source = escaped_line(", ".join(filter(None, sources)))
    lines = [f"* {decision.label} ({source}): {_shown(decision, decision.statement, _STATEMENT)}"]
    if decision.exceptions:
        lines.append(f"Except: {escaped_line(_beginning(decision.exceptions, _WHERE, '…'))}")
    if decision.question:
        lines.append(f"Question: {_question(decision.question, _QUESTION)}")
    if decision.reason:
        lines.append(f"Reason: {_shown(decision, decision.reason, _REASON)}")
    if decision.kept:
        lines.append(escaped_line(_beginning(decision.kept, _REASON, "…")))
    if decision.doubt:
        said = escaped_line(_beginning(decision.doubt, _REASON, "…"))
        lines += [f"An agent said that it does not fit: {said}", "It holds until a human decides on that."]
    return "\n    ".join(lines)


def _others(decision: KnownDecision) -> list[str]:
    """Return what it is to other decisions."""
    said = []
    if decision.replaces:
        said.append(f"replaces {decision.replaces}")
    if decision.exception_to:
        said.append(f"exception to {decision.exception_to}")
    return said


def tokens_of(decision: KnownDecision) -> int:
    """Return about how many tokens the decision takes in a prompt."""
    return len(entry(decision)) // _CHARACTERS + 1


def _question(text: str, limit: int) -> str:
    """Return the question in one line. Of a long one, what asks is kept, which often stands at its end."""
    if len(text) > limit:
        text = _beginning(sentence_with_beginning(text, limit), limit, "…")
    return escaped_line(text)


def _shown(decision: KnownDecision, text: str, limit: int) -> str:
    left = f"[… {len(text) - limit:,} more characters: `cat-herder decisions {decision.label}` shows all]"
    if len(text) > limit + len(left):
        text = _beginning(text, limit, left)
    return escape(text).replace("\n", "\n    ")


def _beginning(text: str, limit: int, mark: str) -> str:
    if len(text) <= limit:
        return text
    end = text.rfind(" ", limit // 2, limit + 1)  # not inside a word, unless it is a very long one
    if end <= 0:
        end = limit
    return f"{text[:end].rstrip()} {mark}"
