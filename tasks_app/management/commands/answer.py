"""`cat-herder answer`: answer a question from the command line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from math import ceil
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_question
from tasks_app.cli.options import add_decision_arguments, decision_input, says_something
from tasks_app.cli.terminal import amount_with_sign, resolve_choice, typed_answer
from tasks_app.core.amounts import counted
from tasks_app.core.asked_items import sentence_asked
from tasks_app.core.errors import AnswerEmpty, BadInput, NotOpen
from tasks_app.core.text import strip_controls
from tasks_app.models import Channel, Question, Verdict
from tasks_app.permissions import Principal
from tasks_app.schemas.questions import AnswerOutcome, QuestionOut
from tasks_app.services.commands import answer_command
from tasks_app.services.decisions.answering import decided_by_answers
from tasks_app.services.questions.answers import (
    Reply,
    answer_question,
    claim_question,
    decide,
    dismiss_question,
    undo_answer,
    undo_until,
)
from tasks_app.services.questions.approvals import approve_equal_calls
from tasks_app.services.questions.asking import ask_opinion, find_user_to_ask, hand_over, take_back
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers
from tasks_app.services.questions.question_outcomes import Answered, why_not_open


class Command(TerminalCommand):
    help = """\
Answers a question that an agent asked, or decides about a tool call or a plan. The task goes on as
soon as a worker of the portal, or a waiting `run_task`, sees it.

A number or the name of an option chooses it (several, separated by commas, where several may be
chosen); anything else reaches the agent to the letter. A question of several items takes one
--item each, or a JSON object of questions with their answers as TEXT."""
    examples = """\
exit codes: 0 answered (also the same answer again), 1 not open any more: says by whom, when and
what, 2 wrong usage

examples:
  cat-herder answer 7 "Spread them"
  cat-herder answer 7 2                                the second option
  cat-herder answer 7 - < decision.txt                 a long answer, from a file
  cat-herder answer 8 --item 1=SQLite --item 2="CSV, PDF" --notes "PDF can come later"
  cat-herder answer 7 --take                           the same answer as before to the same question
  cat-herder answer 9 --approve                        a tool call or a plan
  cat-herder answer 9 --approve --rest                 it and the equal calls of its task
  cat-herder answer 9 --deny "Not before Monday"       --send-back "…" for a plan
  cat-herder answer 9 \'$2.50\'                         allows $2.50 more at a soft cost limit
  cat-herder answer 7 2 --remember project             it holds for later tasks, too
  cat-herder answer 7 1 --decision D-17=replace        it replaces a decision that it contradicts
  cat-herder answer 7 --dismiss                        no answer: the agent decides by itself
  cat-herder answer 7 --undo                           takes it back, before the agent has it
  cat-herder answer 7 --claim                          others see that you are answering
  cat-herder answer 7 --hand-over dana --note "I am away until Monday"
  cat-herder answer 7 --second-opinion dana            she is asked as well
  cat-herder answer 7 -- "-1"                          an answer that begins with a dash"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("question", metavar="QUESTION_ID", help="`cat-herder status` shows it")
        parser.add_argument("text", metavar="TEXT", nargs="?", help="the answer; - reads it from stdin")
        parser.add_argument(
            "--item",
            metavar="N=TEXT",
            action="append",
            default=[],
            help="the answer to the Nth item, counted from 1; repeated for each item",
        )
        parser.add_argument(
            "--take",
            action="store_true",
            help="give the same answer as before to the same question, as `cat-herder status TASK` shows it",
        )
        parser.add_argument("--notes", metavar="TEXT", default="", help="what else the agent should know")
        add_decision_arguments(parser)
        parser.add_argument("--approve", action="store_true", help="approve the tool call or the plan")
        parser.add_argument(
            "--rest",
            action="store_true",
            help="with --approve: also approve the other calls of the task that are exactly the same",
        )
        parser.add_argument("--deny", metavar="REASON", help="deny the tool call; the agent is told why")
        parser.add_argument("--send-back", metavar="COMMENTS", help="send the plan back to be revised")
        parser.add_argument(
            "--dismiss",
            action="store_true",
            help="decline to answer a question: the agent decides by its own judgement. Approvals, plans "
            "and questions about costs cannot be dismissed",
        )
        parser.add_argument(
            "--undo",
            action="store_true",
            help="take your answer back; possible until the agent has it. The answer of a decision, until "
            "the task has ended. Also takes back your --hand-over or --second-opinion",
        )
        parser.add_argument("--claim", action="store_true", help="say that you are answering it")
        parser.add_argument("--hand-over", metavar="NAME", help="ask this user instead of you; see --note")
        parser.add_argument("--second-opinion", metavar="NAME", help="ask this user as well; see --note")
        parser.add_argument("--note", metavar="TEXT", default="", help="what they should know")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
        add_user_argument(parser)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        # Otherwise `7 --as bob TEXT` is an error: argparse decides about the optional TEXT right after the 7.
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
        return parser

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        question = find_question(options["question"], principal=principal)
        if options["undo"]:
            return self._undo(question, options, by=principal)
        if options["claim"] or options["hand_over"] or options["second_opinion"]:
            _ask_as_told(question, options, by=principal)
            return self._say_who_is_asked(question, options)
        if options["note"]:
            raise BadInput("goes with --hand-over or --second-opinion", where="--note")
        try:
            answered = _reply_as_told(question, options, by=principal)
        except BadInput as error:
            if error.where != "decisions":
                raise
            label = re.search(r"\bD-\d+", error.message)
            example = f"{label[0] if label else 'D-17'}=replace"
            raise BadInput(f"{error.message} For example: {example}.", where="--decision") from error
        if options["json"]:
            outcome = AnswerOutcome.from_row(
                answered.question, repeated=answered.repeated, approved_too=list(answered.approved_too)
            )
            self.write_json(outcome)
            return Exit.DONE
        question = answered.question
        said = f"Question {question.pk} is {question.outcome.lower()}"
        if answered.repeated:
            said += " (it was already)"
        for line in _stored_in_words(question, said):
            self.stdout.write(line)
        for other_id in answered.approved_too:
            self.stdout.write(f"Question {other_id} is approved, too: it is the same call.")
        if until := undo_until(question):
            self.stdout.write(_offer_of_undo(question, until))
        return Exit.DONE

    def _undo(self, question: Question, options: dict[str, Any], *, by: Principal) -> int:
        if _given(options):
            raise BadInput("Give --undo alone, without an answer.")
        own = question.asked.current().filter(by=by.user).last()
        if own and question.is_open:
            take_back(own, by=by)
            return self._say_who_is_asked(question, options)
        question = undo_answer(question, by=by)
        if options["json"]:
            self.write_json(AnswerOutcome.from_row(question, repeated=False))
        elif not question.is_open:
            self.stdout.write(f"That was undone before: question {question.pk} was asked instead.")
        elif question.reopens_id:
            self.stdout.write(f"Question {question.pk} is open. It was asked anew, and the agent is stopped.")
        else:
            self.stdout.write(f"Question {question.pk} is open again.")
        return Exit.DONE

    def _say_who_is_asked(self, question: Question, options: dict[str, Any]) -> int:
        question.refresh_from_db()
        if options["json"]:
            self.write_json(QuestionOut.from_row(question))
            return Exit.DONE
        asked = ", ".join(f"{one.user.shown_name} ({one.why})" for one in question.asked_now)
        self.stdout.write(f"Question {question.pk} is asked of {asked or 'all who may answer'}.")
        if question.claimed_by and question.is_claimed:
            self.stdout.write(f"{question.claimed_by.shown_name} is answering it.")
        return Exit.DONE


def _ask_as_told(question: Question, options: dict[str, Any], *, by: Principal) -> None:
    """Claim the question, hand it over or ask for an opinion. Raises BadInput for more than one of these."""
    given = [bool(options[name]) for name in ("claim", "hand_over", "second_opinion")]
    if sum(given) > 1 or _given(options):
        raise BadInput("Give one of --claim, --hand-over and --second-opinion alone, without an answer.")
    if options["claim"]:
        if not question.is_open:
            raise NotOpen(why_not_open(question))
        claim_question(question, by=by)
        return
    where, ask = "--second-opinion", ask_opinion
    if options["hand_over"]:
        where, ask = "--hand-over", hand_over
    try:
        username = options["hand_over"] or options["second_opinion"]
        to = find_user_to_ask(question.task.project, username, by=by)
        ask(question, to, by=by, note=options["note"])
    except BadInput as error:
        raise BadInput(error.message, where=where if error.where == "to" else error.where) from error


def _stored_in_words(question: Question, said: str) -> Iterator[str]:
    """Yield what was answered, each of several questions with its answer, and what that decided."""
    decided = decided_by_answers([question]).get(question.pk, {})
    several = not question.verdict and not question.agent_decides and len(question.items) > 1
    text = question.notes if question.verdict else question.answer_text
    if several:
        yield f"{said}:"
    else:
        yield f"{said}: {text}" if text else f"{said}."
    for item in question.items:
        asked = str(item["question"])
        if several:
            yield f"  {strip_controls(sentence_asked(item))}"
            yield f"    {question.answers.get(asked, '')}"
        for words, one in decided.get(asked, ()):
            yield strip_controls(f"    {words} {one.label} ({one.scope_in_words}): {one.statement}")
    if several and question.notes:
        yield f"  {question.notes_label}: {question.notes}"


def _offer_of_undo(question: Question, until: datetime) -> str:
    """Return how long the answer can be taken back. The task may wait for other answers even longer."""
    seconds = max(1, ceil((until - timezone.now()).total_seconds()))
    others = question.task.questions.open().count()
    if others:
        waits = f"The task waits for {counted(others, 'more answer')}."
        return f"{waits} For {seconds} s --undo takes this one back."
    return f"The agent resumes in {seconds} s. Until then --undo takes it back."


def _given(options: dict[str, Any]) -> int:
    """Return how many answers and decisions the options have."""
    answers = int(options["text"] is not None or bool(options["item"]))
    refusals = sum(options[name] is not None for name in ("deny", "send_back"))
    answers += bool(options["take"])
    return answers + bool(options["approve"]) + bool(options["dismiss"]) + refusals


def _reply_as_told(question: Question, options: dict[str, Any], *, by: Principal) -> Answered:
    """Answer, dismiss or decide, whichever the options say. Raises BadInput if they say more than one."""
    refusals = [name for name in ("deny", "send_back") if options[name] is not None]
    if _given(options) > 1:
        raise BadInput("Give one of TEXT or --item, --take, --approve, --deny, --send-back and --dismiss.")
    if options["rest"] and not options["approve"]:
        raise BadInput("goes with --approve: it approves the equal calls, too", where="--rest")
    notes = options["notes"]
    if (refusals or options["approve"] or options["dismiss"]) and says_something(options):
        raise BadInput("goes with an answer: nothing else is remembered", where="--remember")
    if options["dismiss"]:
        return dismiss_question(question, by=by, via=Channel.TERMINAL, notes=notes)
    if options["rest"]:
        return approve_equal_calls(question, by=by, via=Channel.TERMINAL, notes=notes)
    if options["approve"]:
        return decide(question, Verdict.APPROVED, by=by, via=Channel.TERMINAL, notes=notes)
    if refusals:
        verdict, reason = Verdict.SENT_BACK, options["send_back"]
        if refusals == ["deny"]:
            verdict, reason = Verdict.DENIED, options["deny"]
        reason = "\n\n".join(filter(None, [reason, notes]))
        return decide(question, verdict, by=by, via=Channel.TERMINAL, notes=reason)
    if not question.takes_answer:
        raise BadInput(f"Question {question.pk} needs a decision: {answer_command(question)}")
    answers, taken_from = {}, None
    if options["take"]:
        taken = _earlier_answers(question)
        answers = {asked: answer for one in taken for asked, answer in one.answers.items()}
        taken_from = taken[0].question.pk
        notes = notes or taken[0].notes_for(question)
    else:
        answers = _read_answers(question, options["text"], options["item"])
    reply = Reply(answers, notes, taken_from=taken_from, decision_input=decision_input(question, options))
    return answer_question(question, reply, by=by, via=Channel.TERMINAL)


def _earlier_answers(question: Question) -> list[EarlierAnswer]:
    """Return the same answer as before to each item. Raises BadInput if an item has no earlier answer."""
    same, taken = [one for one in find_similar_answers(question) if one.same], []
    for item in question.items:
        found = next((one for one in same if str(item["question"]) in one.answers), None)
        if found is None:
            which = f"“{item['question']}”"
            if len(question.items) == 1:
                which = f"question {question.pk}"
            raise BadInput(f"{which} was not asked before in the same words", where="--take")
        taken.append(found)
    return taken


def _read_answers(question: Question, text: str | None, items: list[str]) -> dict[str, str]:
    if text is not None and items:
        raise BadInput("Give either TEXT or --item, not both.")
    if text == "-":
        # A character has at most four bytes, so a longer input is too long and need not be read completely.
        data = sys.stdin.buffer.read(4 * settings.ENVIRONMENT.answer_limit + 4)
        text = data.decode(errors="replace").removesuffix("\n").removesuffix("\r")
    if items:
        given = _parse_items(question, items)
    elif text is None:
        raise AnswerEmpty("The answer is empty. Give TEXT, - for stdin, or --item.")
    elif len(question.items) == 1:
        given = {question.headline: text}
    else:
        given = _parse_json(question, text)
    answers = {}
    for item in question.items:
        asked = str(item["question"])
        if asked in given and question.is_about_cost:
            answers[asked] = amount_with_sign(resolve_choice(item, given[asked]))
        elif asked in given:
            answers[asked] = typed_answer(item, given[asked])
    return answers


def _parse_json(question: Question, text: str) -> dict[str, str]:
    asked = [str(item["question"]) for item in question.items]
    hint = f"Question {question.pk} has {len(asked)} items: use --item N=TEXT, or a JSON object"
    try:
        given = json.loads(text)
    except ValueError:
        raise BadInput(f"{hint}.") from None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise BadInput(f"{hint} of questions with texts.")
    if unknown := [name for name in given if name not in asked]:
        raise BadInput(f"The question does not ask “{unknown[0]}”. It asks: {'; '.join(asked)}")
    return given


def _parse_items(question: Question, items: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for entry in items:
        match = re.fullmatch(r"([0-9]{1,3})=(.*)", entry, re.DOTALL)
        number = int(match[1]) if match else 0
        if match is None or not 1 <= number <= len(question.items):
            raise BadInput(
                f"“{entry[:60]}” must be N=TEXT with N from 1 to {len(question.items)}.", where="--item"
            )
        name = str(question.items[number - 1]["question"])
        if name in given:
            raise BadInput(f"item {number} is answered twice.", where="--item")
        given[name] = match[2]
    return given
