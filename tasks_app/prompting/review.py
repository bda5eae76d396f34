"""What the agent is told of a review that requests changes (SPEC V4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks_app.prompting.escaping import escaped_line, fence, head, quote
from tasks_app.prompting.feedback import Feedback

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


def review_feedback(reviews: Sequence[Remark], threads: Sequence[OpenThread]) -> Feedback:
    """Tell that reviewers request changes: what they wrote in general, then each open thread by number."""
    names = " and ".join(dict.fromkeys(escaped_line(review.by) for review in reviews)) or "A reviewer"
    parts = [f"{names} reviewed your work and requests changes."]
    parts += [
        f"{escaped_line(review.by)} wrote:\n{quote(review.text)}" for review in reviews if review.text.strip()
    ]
    if threads:
        count = "1 thread is" if len(threads) == 1 else f"{len(threads)} threads are"
        parts.append(_REPLIES.format(count=count))
        parts += map(_thread_text, threads)
    parts.append("Afterwards your work is checked again, and the steps that follow run again.")
    return Feedback("\n\n".join(parts))


_REPLIES = (
    "{count} open. Deal with each: make the change, or say why it should stay as it is. Then reply to it in "
    'your shell with `cat-herder reply NUMBER "what you did"`, one command for each thread. A thread without '
    "a reply stays open. If you need a decision, ask."
)


def _thread_text(thread: OpenThread) -> str:
    parts = [f"Thread {thread.number}: {escaped_line(thread.place)}"]
    if thread.code:
        then = "The code as it was, which has changed since:" if thread.is_outdated else "The code:"
        parts.append(f"{then}\n\n{fence(head(thread.code, limit=_MAX_CODE))}")
    parts += [f"{escaped_line(remark.by)} wrote:\n{quote(remark.text)}" for remark in thread.remarks]
    return "\n\n".join(parts)


def rerun_feedback() -> Feedback:
    """Tell that an earlier step changed the code after a review, so that this step runs again."""
    return Feedback(
        "A reviewer requested changes, and an earlier step has made them, so this step runs again on the new "
        "code. What an earlier run of it concluded no longer counts: look at the present files."
    )
