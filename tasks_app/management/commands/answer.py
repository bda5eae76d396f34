"""`manage.py answer`: answer a question from the command line."""

from __future__ import annotations

import json
import re
import sys
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
from tasks_app.core.errors import AnswerEmpty, BadInput
from tasks_app.core.text import strip_controls
from tasks_app.models import Channel, Question, Verdict
from tasks_app.permissions import Principal
from tasks_app.schemas.questions import AnswerOutcome
from tasks_app.services.commands import answer_command
from tasks_app.services.decisions.answering import decided_by_answer
from tasks_app.services.questions.answers import (
    Reply,
    answer_question,
    decide,
    dismiss_question,
    undo_answer,
    undo_until,
)
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers
from tasks_app.services.questions.question_outcomes import Answered


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
  manage.py answer 7 "Spread them"
  manage.py answer 7 2                                the second option
  manage.py answer 7 - < decision.txt                 a long answer, from a file
  manage.py answer 8 --item 1=SQLite --item 2="CSV, PDF" --notes "PDF can come later"
  manage.py answer 7 --take                           the same answer as before to the same question
  manage.py answer 9 --approve                        a tool call or a plan
  manage.py answer 9 --deny "Not before Monday"       --send-back "…" for a plan
  manage.py answer 9 \'$2.50\'                         allows $2.50 more at a soft cost limit
  manage.py answer 7 2 --remember project             it holds for later tasks, too
  manage.py answer 7 1 --decision D-17=supersede      it replaces a decision that it contradicts
  manage.py answer 7 --dismiss                        no answer: the agent decides by itself
  manage.py answer 7 --undo                           takes it back, before the agent has it
  manage.py answer 7 -- "-1"                          an answer that begins with a dash"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("question", metavar="QUESTION_ID", help="`manage.py status` shows it")
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
            help="give the same answer as before to the same question, as `manage.py status TASK` shows it",
        )
        parser.add_argument("--notes", metavar="TEXT", default="", help="what else the agent should know")
        add_decision_arguments(parser)
        parser.add_argument("--approve", action="store_true", help="approve the tool call or the plan")
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
            "the task has ended",
        )
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
        try:
            answered = _reply_as_told(question, options, by=principal)
        except BadInput as error:
            if error.where != "decisions":
                raise
            raise BadInput(f"{error.message} For example: D-17=supersede.", where="--decision") from error
        if options["json"]:
            self.write_json(AnswerOutcome.from_row(answered.question, repeated=answered.repeated))
        else:
            question = answered.question
            again = " (it was already)" if answered.repeated else ""
            text = question.notes if question.verdict else question.answer_text
            ending = f": {text}" if text else "."
            self.stdout.write(f"Question {question.pk} is {question.outcome.lower()}{again}{ending}")
            for words, decision in decided_by_answer(question):
                what = f"{words} {decision.label} ({decision.scope_in_words}): {decision.statement}"
                self.stdout.write(strip_controls(what))
            if until := undo_until(question):
                self.stdout.write(_offer_of_undo(question, until))
        return Exit.DONE

    def _undo(self, question: Question, options: dict[str, Any], *, by: Principal) -> int:
        if _given(options):
            raise BadInput("Give --undo alone, without an answer.")
        question = undo_answer(question, by=by)
        if options["json"]:
            self.write_json(AnswerOutcome.from_row(question, repeated=False))
        else:
            anew = " It was asked anew, and the agent is stopped." if question.reopens_id else ""
            self.stdout.write(f"Question {question.pk} is open{' again' if not anew else ''}.{anew}")
        return Exit.DONE


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
    notes = options["notes"]
    if (refusals or options["approve"] or options["dismiss"]) and says_something(options):
        raise BadInput("goes with an answer: nothing else is remembered", where="--remember")
    if options["dismiss"]:
        return dismiss_question(question, by=by, via=Channel.TERMINAL, notes=notes)
    if options["approve"]:
        return decide(question, Verdict.APPROVED, by=by, via=Channel.TERMINAL, notes=notes)
    if refusals:
        verdict = Verdict.DENIED if refusals == ["deny"] else Verdict.SENT_BACK
        reason = "\n\n".join(filter(None, [options[refusals[0]], notes]))
        return decide(question, verdict, by=by, via=Channel.TERMINAL, notes=reason)
    if not question.takes_answer:
        raise BadInput(f"Question {question.pk} needs a decision: {answer_command(question)}")
    taken = _earlier_answers(question) if options["take"] else []
    answers = {asked: answer for one in taken for asked, answer in one.answers.items()}
    answers = answers or _read_answers(question, options["text"], options["item"])
    taken_from = taken[0].question.pk if taken else None
    reply = Reply(answers, notes, taken_from=taken_from, decision_input=decision_input(question, options))
    return answer_question(question, reply, by=by, via=Channel.TERMINAL)


def _earlier_answers(question: Question) -> list[EarlierAnswer]:
    """Return the same answer as before to each item. Raises BadInput if an item has no earlier answer."""
    same, taken = [one for one in find_similar_answers(question) if one.same], []
    for item in question.items:
        found = next((one for one in same if str(item["question"]) in one.answers), None)
        if found is None:
            which = f"question {question.pk}" if len(question.items) == 1 else f"“{item['question']}”"
            raise BadInput(f"{which} was not asked before in the same words", where="--take")
        taken.append(found)
    return taken


def _read_answers(question: Question, text: str | None, items: list[str]) -> dict[str, str]:
    if text is not None and items:
        raise BadInput("Give either TEXT or --item, not both.")
    if text == "-":
        text = _read_stdin()
    given = _parse_items(question, items) if items else _parse_text(question, text)
    read = resolve_choice if question.is_about_cost else typed_answer
    answers = {
        str(item["question"]): read(item, given[str(item["question"])])
        for item in question.items
        if str(item["question"]) in given
    }
    if question.is_about_cost:
        return {asked: amount_with_sign(answer) for asked, answer in answers.items()}
    return answers


def _parse_text(question: Question, text: str | None) -> dict[str, str]:
    if text is None:
        raise AnswerEmpty("The answer is empty. Give TEXT, - for stdin, or --item.")
    if len(question.items) == 1:
        return {question.headline: text}
    return _parse_json(question, text)


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


def _read_stdin() -> str:
    # A character has at most four bytes, so a longer input is too long and need not be read completely.
    data = sys.stdin.buffer.read(4 * settings.ENVIRONMENT.answer_limit + 4)
    return data.decode(errors="replace").removesuffix("\n").removesuffix("\r")
