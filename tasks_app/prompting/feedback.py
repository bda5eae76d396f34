"""Feedback for the agent when it runs again: why, and what to do (SPEC H9, P6, P8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NewType

from tasks_app.prompting.assembly import MAX_LISTED, EarlierAccount, accounts_text
from tasks_app.prompting.criteria import after_failure
from tasks_app.prompting.decisions import FOLLOWED
from tasks_app.prompting.escaping import escape, escaped_line, fence, head, quote, tail

# A reason to go on, in words. The functions below make it, and escape what others wrote.
Feedback = NewType("Feedback", str)

MAX_OUTPUT = 10_000
_MAX_ENDED = 400


@dataclass(frozen=True)
class AnsweredQuestion:
    """One question and the human's reply.

    `result` is that of an approved call which was handed over to the agent, "" if it is not known.
    """

    question: str
    answer: str
    outcome: str = "Answered"
    kind: str = "clarification"
    evidence: str = ""
    result: str | None = None


def answer_feedback(answered: Sequence[AnsweredQuestion], *, answered_by: str) -> Feedback:
    """Tell the replies to the agent's questions, of which there may be several.

    A reply is an answer, a dismissal, or a verdict on a plan or on a call whose session is gone.
    """
    who = escaped_line(answered_by)
    all_answers = all(one.outcome == "Answered" for one in answered)
    asked = all(one.kind == "clarification" for one in answered)
    stopped = "You stopped to ask a human." if asked else "Your work stopped until a human had replied."
    opening = f"{stopped} {who} has {'answered' if all_answers else 'replied'}:"
    parts = [opening, *map(_answer_text, answered)]
    if any(one.outcome == "Answered" for one in answered):  # a verdict or a dismissal says itself what to do
        parts.append("Take each answer as decided and act on it.")
    return Feedback("\n\n".join(parts))


def applied_feedback(decisions: Sequence[str]) -> Feedback:
    """Tell that decisions of the project answered, cited as D-17, and no human now."""
    who = " and ".join(dict.fromkeys(decisions))
    return Feedback(
        f"[From the portal: {who} answered this. People of this project decided that before, when the same "
        "question was asked, so nobody was asked now.]"
    )


def changed_decisions_feedback(
    ended: Sequence[str], exceptions: Sequence[str], new: Sequence[str]
) -> Feedback:
    """Tell which decisions do not hold any more, from which there is an exception, and which are new.

    Each of `ended` says “D-1 does not hold any more” and why; `new` has entries as prompts list them.
    """
    said = [escaped_line(text[:_MAX_ENDED]) for text in ended]
    if exceptions:
        said.append(
            f"{' and '.join(exceptions)} still holds, but not for what you asked: it is an exception."
        )
    changed = ["the decisions of this project have changed.", *said] if said else []
    if new:
        changed.append(
            "From now on this is decided:" if said else "from now on this is decided in this project:"
        )
    text = "\n\n".join(filter(None, [" ".join(changed), "\n".join(new), _HOW_THEY_HOLD if new else ""]))
    return Feedback(f"[From the portal: {text}]")


_HOW_THEY_HOLD = (
    "This holds for what you do from now on. What a human has answered in this task itself goes before it. "
    'If a decision stands in the way of your task, run `cat-herder unfit D-17 "why"`, with its label. Name '
    f"those that you followed in the last line of your last message: `{FOLLOWED} D-3, D-17`."
)


def lost_remark_feedback(approved_by: str, remark: str) -> Feedback:
    """Tell what a human remarked beside the approval of a call that the agent's program rejected then."""
    who = " ".join(escape(approved_by).split())
    return Feedback(
        f"[From the portal: {who} remarked something when your last call was approved. It was rejected, "
        f"so you have not read it.]\n\nRemark of {who}:\n{quote(remark)}"
    )


def taken_back_feedback(answered: Sequence[AnsweredQuestion], *, decision: str, answered_by: str) -> Feedback:
    """Tell that a decision's answer was taken back, and what a human has answered instead."""
    who, texts = escaped_line(answered_by), "\n\n".join(map(_answer_text, answered))
    return Feedback(
        f"[From the portal: {decision} answered a question of this task earlier. That answer was taken back "
        f"and does not hold any more. {who} has been asked instead.]\n\n{texts}\n\n"
        "This counts instead. Change what you have done because of the earlier answer."
    )


def _answer_text(one: AnsweredQuestion) -> str:
    question = f"Question:\n{quote(one.question)}"
    if one.outcome == "Answered":
        return f"{question}\n\nAnswer:\n{quote(one.answer)}"
    if one.outcome == "Dismissed":
        notes = f"\n\nNotes:\n{quote(one.answer)}" if one.answer else ""
        return f"{question}\n\n{_DISMISSED}{notes}"
    subject = f"\n\nIt was about:\n\n{fence(tail(one.evidence, limit=MAX_OUTPUT))}" if one.evidence else ""
    verdict = _VERDICTS[one.kind, one.outcome]
    if one.result is not None:
        verdict = _UNCERTAIN
    if one.result:
        verdict = f"The call was made, once. This came of it:\n\n{fence(tail(one.result, limit=MAX_OUTPUT))}"
    return f"{question}{subject}\n\nDecision:\n{quote(one.answer)}\n\n{verdict}"


_UNCERTAIN = (
    "The call may have been made, in part or as a whole: look at how things stand. If it is still to be "
    "made, make it again; a human is asked once more."
)


#: The request to the agent after a dismissed question.
DECIDE_YOURSELF = "Decide it by your own best judgement, and say in your last message what you assumed."
_DISMISSED = f"Dismissed: there is no answer. {DECIDE_YOURSELF}"
_VERDICTS = {
    (
        "approval",
        "Approved",
    ): "The call was not made yet. Make it again if it is still needed; a human is asked once more.",
    ("approval", "Denied"): (
        "The call was not made. Do what these words say; if they name no other way, go on without it."
    ),
    ("plan", "Approved"): "The plan is approved. Do what it says.",
    ("plan", "Sent back"): "Revise the plan accordingly, and call ExitPlanMode again.",
}


def lost_work_feedback(commit: str) -> Feedback:
    """Tell that the host of the last run was lost before it had recorded the agent's work."""
    return Feedback(
        "[From the portal: the machine on which you worked was lost. Your files are those of commit "
        f"{commit[:10]}; what you changed after that is gone. Look at them, and do again what is missing.]"
    )


def set_aside_feedback() -> Feedback:
    """Tell that several calls that need an approval were made at once; their session is gone."""
    return Feedback(
        "You made several calls at once that wait for a human; none was made and nobody was asked. Make each "
        "call that needs approval in a message of its own, the first one first."
    )


def failed_check_feedback(
    *,
    check: str,
    reason: str,
    output: str,
    passed_already: bool = False,
    has_own_home: bool = False,
    attempts: int | None = None,
) -> Feedback:
    """Tell which check the agent's work failed.

    `check` is what was checked (a command, a file), `reason` how it failed ("it ended with exit code 1"). The
    end of a long output is kept, since the verdict stands there. With `passed_already` the
    command should have failed, for tests of missing behaviour, but succeeded. `has_own_home`: the check is a
    command, which does not see the agent's home. `attempts` is the number of further attempts after this one.
    """
    parts = [f"Your work was checked after you ended your turn, and the check failed: {escape(reason)}."]
    parts.append(f"The check:\n\n{fence(check)}")
    if output.strip():
        parts.append(f"Its output:\n\n{fence(tail(output, limit=MAX_OUTPUT))}")
    if has_own_home:
        parts.append(_CHECKS_HOME)
    parts += [_PASSED_ALREADY if passed_already else _REPAIR, SAY_AGAIN]
    if attempts is not None:
        parts.append(f"If your work does not pass then, {after_failure(attempts)}")
    return Feedback("\n\n".join(parts))


_CHECKS_HOME = (
    "The check had a home of its own: what you installed into yours, as with `pip install --user`, was not "
    "there."
)
#: Without it the account of the work ends with “nothing else was changed”.
SAY_AGAIN = (
    "In your last message say again first all that you changed in your step, and then what you did in this "
    "run."
)
_REPAIR = (
    "Find the cause and repair it in your work. Do not weaken the checks: change, skip or delete no "
    "test, check or setting in order to make it pass. A test that you wrote yourself and that is wrong is "
    "part of your work: correct it, and say so."
)
_PASSED_ALREADY = (
    "These tests pass already, before the change that they are to call for, so they do not show that "
    "anything is missing. Find out why: they may not be run by this command, may not test what the task "
    "demands, or may test what is there already. Write tests that fail because that behaviour is missing. Do "
    "not make them fail in any other way: break no code, and write no test that can never pass. If all that "
    'the task demands is there already, no such test can be written: run `cat-herder not-done "why"`, and '
    "say in the reason where it is."
)


def retry_feedback(*, steps_followed: bool = True, put_back: bool = False, not_done: str = "") -> Feedback:
    """Tell that a person retries the step from its beginning; with `put_back`, its changes are gone.

    `not_done` is why the agent of the last attempt said that it cannot be done.
    """
    others = ", and the steps that followed," if steps_followed else ""
    said = (
        f"A person restarted this step. An earlier attempt at it{others} may have left work in "
        "the files: look at what is there before you begin, and keep what is right."
    )
    if put_back:
        said = (
            "A person restarted this step after the files were put back to their state before it: what its "
            "earlier attempts changed is gone. What humans have decided meanwhile holds."
        )
    if not_done:
        said += (
            f"\n\nThe agent of the last attempt said that it is not done, and why:\n{quote(not_done)}\n"
            "Look whether that still holds before you try the same again."
        )
    return Feedback(said)


def threshold_feedback(threshold: int, *, instructions: str, has_tool: bool = True) -> str:
    """Tell that a person changed the interaction threshold; `instructions` belong to the new one.

    Without `has_tool` the session began at a threshold of 0, and its tools stay as they were.
    """
    if threshold == 0:
        return (
            "[From the portal: the interaction threshold is now 0. From here on nobody can be asked. Where "
            "you would have asked, decide by yourself and write down what you assumed.]"
        )
    return (
        f"[From the portal: the interaction threshold is now {threshold}. From here on the following holds, "
        "in place of what you were told before on deciding and asking.]\n\n"
        f"{instructions}{'' if has_tool else _BY_COMMAND}"
    )


_BY_COMMAND = (
    "\n\nThe tool `AskUserQuestion` is not among your tools now, because you began without it: ask with the "
    "command."
)


_LOOK = (
    "Nothing is wrong with what you did. If you had begun something, it may be incomplete: look before you "
    "go on."
)


def usage_limit_feedback(*, reset_at: datetime | None) -> Feedback:
    """Tell that a usage limit of the model stopped the work. `reset_at` (with time zone) is when it ended."""
    until = f" until {reset_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if reset_at else ""
    said = f"A usage limit of the model stopped you in the middle of your work{until}. The limit is over."
    return Feedback(f"{said} {_LOOK}")


def budget_feedback() -> Feedback:
    """Tell that the work stopped because a budget, or what the task may cost, was spent."""
    return Feedback(f"Your work stopped at a limit of what it may cost, and may go on now. {_LOOK}")


def soft_limit_feedback() -> Feedback:
    """Tell that the work stopped at the task's soft cost limit; what was decided is a note of the portal."""
    return Feedback(
        f"Your work stopped because the task had reached its soft cost limit, and a human was asked. {_LOOK}"
    )


def cost_answer_feedback(
    *, decided_by: str, answer: str, notes: str, to_finish: float | None = None
) -> Feedback:
    """Tell what a human decided at the task's soft cost limit: `answer` says how much more it may spend.

    With `to_finish` (dollars) the agent must end its present step within that.
    """
    who = escaped_line(decided_by)
    parts = [f"[From the portal: the task had reached its soft cost limit. {who} decided: {escape(answer)}.]"]
    if notes:
        parts.append(f"Notes of {who}:\n{quote(notes)}")
    if to_finish is not None:
        parts.append(_FINISH.format(dollars=f"${to_finish:.2f}"))
    return Feedback("\n\n".join(parts))


_FINISH = (
    "The task ends with the step that you are working on: no further step begins. You may spend at most "
    "{dollars} more, and you are stopped once that is spent. Bring what you are doing to an orderly end now. "
    "Begin nothing new. Leave the files in a state that works, with every change either complete or taken "
    "back. Then end your turn. Say in your last message what you have done and what is left undone."
)


@dataclass(frozen=True)
class Deed:
    """An action of a human on the task; `by` is empty if the user is unknown. `at` has a time zone."""

    did: str
    by: str
    at: datetime

    def __str__(self) -> str:
        who = escaped_line(self.by) or "somebody"
        return f"{who} {self.did} at {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def interruption_feedback(*deeds: Deed) -> Feedback:
    """Tell that the work was interrupted: by those who stopped and resumed the task, or by the portal."""
    who = ", and ".join(map(str, deeds)) or "the portal was stopped in the middle of it, as for a restart"
    return Feedback(f"Your work was interrupted: {who}. {_LOOK}")


#: The beginning of the reason for which a task fails that its agent could not do.
NOT_DONE = "The agent says that the task is not done: "


def not_done_feedback(why: str) -> Feedback:
    """Tell that a person wants the task to go on although its agent had said that it is not done."""
    return Feedback(
        f"Your last run ended with `cat-herder not-done`, for this reason:\n\n{quote(why)}\n\nA human "
        "has resumed the task since. See whether what was missing is there now, and go on."
    )


def crash_feedback(*, detail: str = "") -> Feedback:
    """Tell that the agent's process ended early; `detail` is what is known about the reason."""
    known = f" What is known of it:\n\n{fence(tail(detail, limit=MAX_OUTPUT))}\n\n" if detail.strip() else " "
    return Feedback(
        f"The process that you ran in ended unexpectedly.{known}Files may be half written and commands may "
        "have run in part: look at the state of the repository before you go on."
    )


# What the agent is told of a review that requests changes (SPEC V4).


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
        parts.append(_REPLIES.format(count=count) + (_OR_ASK if may_ask else ""))
        parts += map(_thread_text, threads)
    then = []
    if is_checked:
        then.append("your work is checked again")
    if steps_follow:
        then.append("the steps that follow run again")
    afterwards = f"Afterwards {', and '.join(then)}. " if then else ""
    parts.append(f"{afterwards}{SAY_AGAIN}")
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
    return "\n\n".join([*parts, *_remark_texts(thread.remarks)])


def _remark_texts(remarks: Sequence[Remark]) -> list[str]:
    return [f"{escaped_line(one.by)} wrote:\n{quote(one.text)}" for one in remarks if one.text.strip()]


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
    return Feedback("\n\n".join([_RERUN, *_remark_texts(reviews), *map(_thread_text, threads)]))


_RERUN = (
    "Reviewers requested changes, an earlier step has dealt with them, and this step runs again on what it "
    "left. What an earlier run of this step concluded no longer counts: look at the present files. What the "
    "reviewers wrote stands below, with the replies. You need not reply to it, but keep to it as to the task "
    "itself."
)
