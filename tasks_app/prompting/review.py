"""What the agent is told of a review that requests changes (SPEC V4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks_app.prompting.assembly import MAX_LISTED, EarlierAccount, accounts_text
from tasks_app.prompting.escaping import escaped_line, fence, head, quote
from tasks_app.prompting.feedback import SAY_AGAIN, Feedback

_MAX_CODE = 4_000


@dataclass(frozen=True)
class Remark:
    """Something that a person, or the agent itself, wrote."""

    by: str
    text: str


@dataclass(frozen=True)
class OpenThread:
    """A thread that waits for the agent.

    `place` names file and line in words, `code` is the excerpt that it is about, "" for a whole file or the
    whole result. `is_outdated`: the code was changed since, so that the excerpt is as it was.
    """

    number: int
    place: str
    code: str
    remarks: tuple[Remark, ...]
    is_outdated: bool = False


def review_feedback(
    reviews: Sequence[Remark],
    threads: Sequence[OpenThread],
    *,
    may_ask: bool = True,
    is_checked: bool = True,
    steps_follow: bool = True,
) -> Feedback:
    """Tell that reviewers request changes: what they wrote in general, then each open thread by number.

    If the agent may not ask, no word says that it could (H13). `is_checked`: the step has checks.
    """
    names = " and ".join(dict.fromkeys(escaped_line(review.by) for review in reviews)) or "A reviewer"
    parts = [f"{names} reviewed your work and requests changes."]
    parts += [
        f"{escaped_line(review.by)} wrote:\n{quote(review.text)}" for review in reviews if review.text.strip()
    ]
    if threads:
        count = "1 thread is" if len(threads) == 1 else f"{len(threads)} threads are"
        parts.append(_REPLIES.format(count=count) + (_OR_ASK if may_ask else ""))
        parts += map(_thread_text, threads)
    then = [
        *(["your work is checked again"] if is_checked else []),
        *(["the steps that follow run again"] if steps_follow else []),
    ]
    parts.append(f"Afterwards {', and '.join(then)}. {SAY_AGAIN}" if then else SAY_AGAIN)
    return Feedback("\n\n".join(parts))


_REPLIES = (
    "{count} open. Deal with each: make the change, or say why it should stay as it is. Then reply to it in "
    'your shell with `cat-herder reply NUMBER "what you did"`, one command for each thread; put a backslash '
    "before each `$` and backtick in the double quotes. A thread without a reply stays open."
)
_OR_ASK = " If you need a decision, ask."


def _thread_text(thread: OpenThread) -> str:
    parts = [f"Thread {thread.number}: {escaped_line(thread.place)}"]
    if thread.code:
        then = "The code as it was, which has changed since:" if thread.is_outdated else "The code:"
        parts.append(f"{then}\n\n{fence(head(thread.code, limit=_MAX_CODE))}")
    parts += [f"{escaped_line(remark.by)} wrote:\n{quote(remark.text)}" for remark in thread.remarks]
    return "\n\n".join(parts)


def later_steps_feedback(
    steps: Sequence[str], files: Sequence[str], accounts: Sequence[EarlierAccount]
) -> Feedback:
    """Tell which steps have run, and which files have changed, since the agent's last message."""
    shown = [*map(escaped_line, files[:MAX_LISTED])]
    if more := len(files) - len(shown):
        shown.append(f"and {more} more")
    changed = f" These files have changed since then: {', '.join(shown)}." if shown else ""
    said = f"Since your last message these steps have run: {', '.join(map(escaped_line, steps))}.{changed}"
    return Feedback(f"{said}\n\n{accounts_text(accounts)}" if accounts else said)


def rerun_feedback(reviews: Sequence[Remark], threads: Sequence[OpenThread]) -> Feedback:
    """Tell what reviewers requested of an earlier step, so that this step runs again."""
    parts = [_RERUN]
    parts += [
        f"{escaped_line(review.by)} wrote:\n{quote(review.text)}" for review in reviews if review.text.strip()
    ]
    return Feedback("\n\n".join([*parts, *map(_thread_text, threads)]))


_RERUN = (
    "Reviewers requested changes, an earlier step has dealt with them, and this step runs again on what it "
    "left. What an earlier run of this step concluded no longer counts: look at the present files. What the "
    "reviewers wrote stands below, with the replies. You need not reply to it, but keep to it as to the task "
    "itself."
)
