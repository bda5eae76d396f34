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
    parts = [f"{names} reviewed your work and requests changes.", *_remark_texts(reviews)]
    if threads:
        count = "1 thread is" if len(threads) == 1 else f"{len(threads)} threads are"
        replies = _REPLIES.format(count=count)
        if may_ask:
            replies += _OR_ASK
        parts.append(replies)
        parts += map(_thread_text, threads)
    then = []
    if is_checked:
        then.append("your work is checked again")
    if steps_follow:
        then.append("the steps that follow run again")
    if then:
        parts.append(f"Afterwards {', and '.join(then)}. {SAY_AGAIN}")
    else:
        parts.append(SAY_AGAIN)
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
        about = "The code:"
        if thread.is_outdated:
            about = "The code as it was, which has changed since:"
        parts.append(f"{about}\n\n{fence(head(thread.code, limit=_MAX_CODE))}")
    return "\n\n".join([*parts, *_remark_texts(thread.remarks)])


def _remark_texts(remarks: Sequence[Remark]) -> list[str]:
    return [f"{escaped_line(one.by)} wrote:\n{quote(one.text)}" for one in remarks if one.text.strip()]


def later_steps_feedback(
    steps: Sequence[str], files: Sequence[str], accounts: Sequence[EarlierAccount], decided: str
) -> Feedback:
    """Tell which steps have run, what humans decided and which files changed since the last message."""
    shown = [*map(escaped_line, files[:MAX_LISTED])]
    if more := len(files) - len(shown):
        shown.append(f"and {more} more")
    said = f"Since your last message these steps have run: {', '.join(map(escaped_line, steps))}."
    if shown:
        said += f" These files have changed since then: {', '.join(shown)}."
    if accounts:
        said += f"\n\n{accounts_text(accounts)}"
    if decided:
        said += f"\n\n{decided}"
    return Feedback(said)


def rerun_feedback(reviews: Sequence[Remark], threads: Sequence[OpenThread]) -> Feedback:
    """Tell what reviewers requested of an earlier step, so that this step runs again."""
    return Feedback("\n\n".join([_RERUN, *_remark_texts(reviews), *map(_thread_text, threads)]))


_RERUN = (
    "Reviewers requested changes, an earlier step has dealt with them, and this step runs again on what it "
    "left. What an earlier run of this step concluded no longer counts: look at the present files. What the "
    "reviewers wrote stands below, with the replies. You need not reply to it, but keep to it as to the task "
    "itself."
)
