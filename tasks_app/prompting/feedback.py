"""Feedback for the agent when it runs again: why, and what to do (SPEC H9, P6, P8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NewType

from tasks_app.prompting.criteria import after_failure
from tasks_app.prompting.decisions import FOLLOWED, without_followed_line
from tasks_app.prompting.escaping import escape, escaped_line, fence, newest_that_fit, quote, tail
from tasks_app.prompting.no_answer import DECIDE_YOURSELF, taken_by_rule

# A reason to go on, in words. The functions below make it, and escape what others wrote.
Feedback = NewType("Feedback", str)

MAX_OUTPUT = 10_000
_MAX_ENDED, _MAX_MESSAGES = 400, 30_000


@dataclass(frozen=True)
class AnsweredQuestion:
    """One question and the human's reply.

    `result` is that of an approved call which was handed over to the agent, "" if it is not known. `ended`
    says that a rule ended the question without an answer; `answer` is then what the agent recommended, if
    that was taken.
    """

    question: str
    answer: str
    outcome: str = "Answered"
    kind: str = "clarification"
    evidence: str = ""
    result: str | None = None
    ended: str = ""


def answer_feedback(answered: Sequence[AnsweredQuestion], *, answered_by: str) -> Feedback:
    """Tell the replies to the agent's questions, of which there may be several.

    A reply is an answer, a dismissal, or a verdict on a plan or on a call whose session is gone.
    """
    who = escaped_line(answered_by)
    stopped, verb = "Your work stopped until a human had replied.", "replied"
    if all(one.kind == "clarification" for one in answered):
        stopped = "You stopped to ask a human."
    if all(one.outcome == "Answered" for one in answered):
        verb = "answered"
    said = f"{who} has {verb}:"
    if any(one.ended for one in answered):
        said = "This came of it:"
    parts = [f"{stopped} {said}", *map(_answer_text, answered)]
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
    ended: Sequence[str], exceptions: Sequence[str], kept: Sequence[str], new: Sequence[str]
) -> Feedback:
    """Tell which decisions have ended, from which there is an exception, which were kept, and which are new.

    Each of `ended` says “D-1 does not hold any more” and why, each of `kept` who kept it after the agent had
    reported it; `new` has entries as prompts list them.
    """
    changed = []
    if ended or exceptions:
        changed.append("the decisions of this project have changed.")
    changed += [escaped_line(text[:_MAX_ENDED]) for text in ended]
    if exceptions:
        which = " and ".join(exceptions)
        changed.append(f"What you asked is an exception to {which}. Nothing else about {which} changes.")
    changed += [escaped_line(text[:_MAX_ENDED]) for text in kept]
    if not new:
        return Feedback(f"[From the portal: {' '.join(changed)}]")
    if changed:
        changed.append("From now on this is decided:")
    else:
        changed.append("from now on this is decided in this project:")
    text = "\n\n".join([" ".join(changed), "\n".join(new), _HOW_THEY_HOLD])
    return Feedback(f"[From the portal: {text}]")


_HOW_THEY_HOLD = (
    "This holds for what you do from now on. What humans have answered or requested in this task itself goes "
    'before it. If a decision stands in the way of your task, run `cat-herder unfit D-N "why"`, with its '
    "number for N. Name those that you followed in the last line of your last message: "
    f"`{FOLLOWED} D-N`, with commas "
    "between several."
)


def lost_remark_feedback(approved_by: str, remark: str) -> Feedback:
    """Tell what a human remarked beside the approval of a call that the agent's program rejected then."""
    who = escaped_line(approved_by)
    return Feedback(
        f"[From the portal: {who} remarked something when your last call was approved. It was rejected, "
        f"so you have not read it.]\n\nRemark of {who}:\n{quote(remark)}"
    )


def taken_back_feedback(
    answered: Sequence[AnsweredQuestion],
    *,
    before: str,
    held: str,
    undone_by: str,
    answered_by: str,
    ended: bool = False,
) -> Feedback:
    """Tell that the answer of a decision was taken back, by whom, and what a human has answered instead.

    `before` names the decision, or the rule that had `ended` the question without an answer. `held` is what
    was answered or taken by it.
    """
    undone, who = escaped_line(undone_by), escaped_line(answered_by)
    said = f"{before} answered a question of this task earlier. {undone} took that answer back"
    if ended:
        said = f"{before} ended a question of this task without an answer. {undone} undid that"
    had = f" (“{escaped_line(held)}”)" if held else ""
    texts = "\n\n".join(map(_answer_text, answered))
    return Feedback(
        f"[From the portal: {said}{had}, so it does not hold any more. {who} has answered instead.]\n\n"
        f"{texts}\n\nThis holds now. Change whatever you did that rests on the earlier outcome."
    )


def _answer_text(one: AnsweredQuestion) -> str:
    parts = [f"Question:\n{quote(one.question)}"]
    if one.ended:
        parts.append(f"{one.ended} {taken_by_rule(one.answer)}")
    elif one.outcome == "Answered":
        parts.append(f"Answer:\n{quote(one.answer)}")
    elif one.outcome == "Dismissed":
        parts.append(_DISMISSED)
        if one.answer:
            parts.append(f"Notes:\n{quote(one.answer)}")
    else:
        if one.evidence:
            parts.append(f"It was about:\n\n{fence(tail(one.evidence, limit=MAX_OUTPUT))}")
        parts.append(f"Decision:\n{quote(one.answer)}")
        if one.result:
            shown = fence(tail(one.result, limit=MAX_OUTPUT))
            parts.append(f"The call was made, once. This came of it:\n\n{shown}")
        elif one.result == "":
            parts.append(_UNCERTAIN)
        else:
            parts.append(_VERDICTS[one.kind, one.outcome])
    return "\n\n".join(parts)


_UNCERTAIN = (
    "The call may have been made, in part or as a whole: look at how things stand. If it is still to be "
    "made, make it again; a human is asked once more."
)


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


def after_rehearsal_feedback() -> Feedback:
    """Tell a real model that a script played it."""
    return Feedback(
        "What you did so far, also in earlier steps, was a rehearsal: a script wrote your words and made "
        "your calls. The files and the people's answers are real. Rely on nothing that the script said; "
        "check what is there, and do your step."
    )


def asks_something(message: str) -> bool:
    """Return whether the last paragraph of a message ends with a question mark. Code and quotes do not."""
    text = without_followed_line(message)
    last = text.rstrip(" \t\n*_)”\"'").split("\n\n")[-1]
    in_fence = len(re.findall(r"^ {0,3}(?:```|~~~)", text, re.MULTILINE)) % 2 == 1
    ends_fence = text.rstrip().endswith(("```", "~~~"))
    return last.endswith("?") and not (in_fence or ends_fence or last.lstrip().startswith((">", "    ")))


def unread_question_feedback() -> Feedback:
    """Tell that a question in a last message is answered by nobody."""
    return Feedback(
        "Your last message ends with a question, and nobody was asked: people read it after your step. "
        "If you need the answer to do your step, ask now by the tool for it, and you get it here. Otherwise "
        f"decide it yourself. {SAY_AGAIN} Say there what you decided, and ask nothing."
    )


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
    of_last_attempt: bool = False,
) -> Feedback:
    """Tell which check the agent's work failed, or with `of_last_attempt` that of another session.

    `check` is what was checked (a command, a file), `reason` how it failed ("it ended with exit code 1"). The
    end of a long output is kept, since the verdict stands there. With `passed_already` the
    command should have failed, for tests of missing behaviour, but succeeded. `has_own_home`: the check is a
    command, which does not see the agent's home. `attempts` is the number of further attempts after this one.
    """
    parts = [f"Your work was checked after you ended your turn, and the check failed: {escape(reason)}."]
    if of_last_attempt:
        parts = [f"The work of the last attempt was checked, and the check failed: {escape(reason)}."]
    parts.append(f"The check:\n\n{fence(check)}")
    if output.strip():
        parts.append(f"Its output:\n\n{fence(tail(output, limit=MAX_OUTPUT))}")
    if has_own_home:
        parts.append(_CHECKS_HOME)
    parts.append(_PASSED_ALREADY if passed_already else _REPAIR)
    if not of_last_attempt:
        parts.append(SAY_AGAIN)
    if attempts is not None:
        parts.append(f"If your work does not pass then, {after_failure(attempts)}")
    return Feedback("\n\n".join(parts))


def other_plan_feedback(difference: str, *, attempts: int) -> Feedback:
    """Tell that the step has left another plan than the one that a human has approved.

    `attempts` is the number of further attempts after this one.
    """
    return Feedback(
        "After you ended your turn, PLAN.md was not the plan that a human has approved. This is the "
        f"difference:\n\n{fence(difference)}\n\n"
        "The approved plan is in PLAN.md again; it is what the next steps get. If it is to stay as it was "
        "approved, end your turn, although your program wants it to end in another way. If it has to change, "
        "a human must see that first, so you are in plan mode again: write the whole new text to the file of "
        "the plan that your program names, and call `ExitPlanMode`, with nothing else in that message. Once "
        f"it is approved, write the same text to PLAN.md.\n\n{SAY_AGAIN}\n\n"
        f"If PLAN.md differs from the approved plan then, {after_failure(attempts)}"
    )


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
    "part of your work: correct it, and say so. If the check demands what the task does not want, bend "
    'neither: run `cat-herder not-done "why"`, and say in the reason which of the two should change.'
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
    attempts = "An earlier attempt at it"
    if steps_followed:
        attempts += ", and the steps that followed,"
    said = (
        f"A person restarted this step. {attempts} may have left work in "
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
    text = (
        f"[From the portal: the interaction threshold is now {threshold}. From here on the following holds, "
        f"in place of what you were told before on deciding and asking.]\n\n{instructions}"
    )
    if not has_tool:
        text += _BY_COMMAND
    return text


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
    until = ""
    if reset_at:
        until = f" until {reset_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    said = f"A usage limit of the model stopped you in the middle of your work{until}. The limit is over."
    return Feedback(f"{said} {_LOOK}")


def budget_feedback() -> Feedback:
    """Tell that the work stopped because a budget, or what the task may cost, was spent."""
    return Feedback(f"Your work stopped at a limit of what it may cost, and may go on now. {_LOOK}")


def soft_limit_feedback() -> Feedback:
    """Tell that the work stopped; a note of the portal says at which limit, and what was decided."""
    return Feedback(f"Your work stopped because the portal had to ask a human. {_LOOK}")


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
    return Feedback(f"Your work was interrupted: {who}. {_LAST_CALLS} {_LOOK}")


_LAST_CALLS = "Your last calls before that may not have been made, or only in part."


@dataclass(frozen=True)
class Message:
    """What a person wrote to the agent when they had the task go on. `at` has a time zone.

    `got_by` is the step of another agent that was told it and has ended since; "" if there is none.
    """

    by: str
    at: datetime
    text: str
    got_by: str = ""


def messages_feedback(messages: Sequence[Message]) -> Feedback:
    """Tell what people wrote to the agent when they resumed or retried the task; "" without messages."""
    texts = []
    for one in messages:
        counts = "It counts like the task itself."
        if one.got_by:
            counts = _GOT_BY.format(step=escaped_line(one.got_by))
        texts.append(
            f"[From the portal: {escaped_line(one.by)} had this task go on at "
            f"{one.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, and wrote this to its agent. {counts}]"
            f"\n\n{quote(one.text)}"
        )
    return Feedback("\n\n".join(newest_that_fit(texts, limit=_MAX_MESSAGES)))


_GOT_BY = (
    "Step {step} got it, and has ended since, so this is for you to know: keep to it in your own work, and "
    "do nothing else about it unless the files show that it was not followed."
)


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
    said = "The process that you ran in ended unexpectedly."
    if detail.strip():
        said += f" What is known of it:\n\n{fence(tail(detail, limit=MAX_OUTPUT))}\n\n"
    else:
        said += " "
    return Feedback(
        f"{said}Files may be half written and commands may "
        "have run in part: look at the state of the repository before you go on."
    )
