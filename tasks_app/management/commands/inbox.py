"""`cat-herder inbox`: answer all open questions, one after the other."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.urls import reverse

from tasks_app.absolute_urls import absolute_url
from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.local_worker import CtrlC
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_project
from tasks_app.cli.questions import (
    Outcome,
    Prompt,
    Skipped,
    prompt_until_answered,
    show_how_to_answer,
    show_question,
    show_question_heading,
)
from tasks_app.cli.terminal import Keyboard, open_page
from tasks_app.core.amounts import counted
from tasks_app.models import Question, asked_of, asked_of_groups_of, by_urgency
from tasks_app.permissions import Principal, projects_actable_by, questions_answerable_by


class Command(TerminalCommand):
    help = """\
Shows the open questions, approvals and plans that are asked of you, and reads an answer to each. Those that
hold up a sequence come first, then those that are put to more people soonest, then the oldest. An empty line
leaves one open and goes on to the next; Ctrl+C or Ctrl+D ends it."""
    examples = """\
exit codes: 0 no question is left open, 3 some are

examples:
  cat-herder inbox
  cat-herder inbox --project billing
  cat-herder inbox --asked all         also what is asked of others
  cat-herder inbox --no-input          only shows them, and how to answer
  cat-herder inbox --web               opens the page"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="NAME", help="only questions of this project")
        parser.add_argument(
            "--asked",
            choices=["me", "groups", "all"],
            default="me",
            help="of whom they are asked: you (the default), one of your groups, or anybody",
        )
        parser.add_argument("--no-input", action="store_true", help="never prompt: show how to answer each")
        parser.add_argument("--web", action="store_true", help="open the inbox in the browser")
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        if options["web"]:
            open_page(absolute_url(reverse("inbox")), self._screen)
            return Exit.DONE
        principal = acting_principal(options["username"])
        rows = questions_answerable_by(principal)
        if options["project"]:
            project = find_project(options["project"], projects=projects_actable_by(principal))
            rows = rows.filter(task__project=project)
        others = rows.open().count()
        if options["asked"] != "all":
            asked = asked_of if options["asked"] == "me" else asked_of_groups_of
            rows = rows.filter(asked(principal.user))
        ids = [question.pk for question in by_urgency(rows.open()).only("pk")]
        others -= len(ids)
        if others:
            self._screen.say(f"{counted(others, 'open question')} of others: --asked all", style="dim")
        if not ids:
            self._screen.say("No open questions.")
            return Exit.DONE
        self._screen.say(f"{counted(len(ids), 'open question')}, the most urgent first", style="bold")
        if options["no_input"]:
            for question in _still_open(ids):
                show_question_heading(self._screen, question)
                show_question(self._screen, question)
                show_how_to_answer(self._screen, question)
        else:
            self._walk(ids, principal)
        left = rows.open().filter(pk__in=ids).count()
        return Exit.WAITING if left else Exit.DONE

    def _walk(self, ids: list[int], principal: Principal) -> None:
        answered = 0
        keyboard = Keyboard()
        with CtrlC() as ctrl_c:
            prompt = Prompt(self._screen, keyboard, check_interrupt=ctrl_c.check, may_skip=True)
            try:
                for number in ids:
                    for question in _still_open([number]):  # somebody may have answered it meanwhile
                        show_question_heading(self._screen, question)
                        try:
                            outcome = prompt_until_answered(question, prompt, self._screen, by=principal)
                        except Skipped:
                            continue
                        answered += outcome is Outcome.ANSWERED
            except (EOFError, KeyboardInterrupt):
                self._screen.say()
        keyboard.discard_input()
        left = Question.objects.open().filter(pk__in=ids).count()
        self._screen.say()
        self._screen.say(f"{answered} answered, {left} still open.")


def _still_open(ids: list[int]) -> list[Question]:
    return list(by_urgency(Question.objects.open().filter(pk__in=ids).shown()))
