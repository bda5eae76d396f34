"""`cat-herder review`: show the reviews of a task's result, and review it."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction
from django.urls import reverse

from tasks_app.absolute_urls import absolute_url
from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_task
from tasks_app.cli.options import add_terminal_arguments
from tasks_app.cli.task_session import run_task_locally
from tasks_app.cli.terminal import Screen, open_page
from tasks_app.core.errors import BadInput
from tasks_app.models import Channel, ReviewThread, ReviewVerdict, Side, Task
from tasks_app.permissions import tasks_visible_to
from tasks_app.schemas.reviews import ReviewOut, ReviewsOut, ThreadOut
from tasks_app.services.difference import difference_of
from tasks_app.services.review_threads import reply_to, resolve
from tasks_app.services.reviews import NewThread, send_review

_PLACED = re.compile(r"(?P<path>[^\n:]+):(?P<first>\d+)(?:-(?P<last>\d+))?:\s*(?P<text>.+)", re.DOTALL)


class Command(TerminalCommand):
    help = """\
Reviews the result of a task. Without a verdict and comments it shows the reviews so far.

--request-changes hands every open thread to the last step that wrote code and may change the files
concerned; its checks and the steps after it run again. A worker of the portal does the work, or this
terminal with --here. While the task works, the request waits until its steps are done."""
    examples = """\
exit codes: 0 sent, shown or done, 1 not possible now, or failed, 2 wrong usage, 3 waiting for an
answer, 130 interrupted

examples:
  cat-herder review 12
  cat-herder review 12 --request-changes --comment "app/billing.py:12: Round half up."
  cat-herder review 12 --comment "app/billing.py:8-12: Nice." --comment "Thanks for the tests."
  cat-herder review 12 --before "app/billing.py:3: Why was this removed?"   a line before the change
  cat-herder review 12 --reply 2 "Please do." --resolve 1
  cat-herder review 12 --diff | less -R
  cat-herder review 12 --approve"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", help="a task's id, or PROJECT/TASK")
        verdict = parser.add_mutually_exclusive_group()
        verdict.add_argument("--request-changes", action="store_true", help="send the result back")
        verdict.add_argument("--approve", action="store_true", help="approve the newest result")
        parser.add_argument("--body", default="", metavar="TEXT", help="what you say about the whole")
        parser.add_argument(
            "--comment", action="append", default=[], metavar="PATH:LINE: TEXT",
            help="a thread on a line, on lines with FIRST-LAST, or with a text alone on the whole",
        )  # fmt: skip
        parser.add_argument(
            "--before", action="append", default=[], metavar="PATH:LINE: TEXT",
            help="a thread on a line as it was before the change",
        )  # fmt: skip
        parser.add_argument(
            "--reply", action="append", nargs=2, default=[], metavar=("N", "TEXT"), help="reply to thread N"
        )
        parser.add_argument(
            "--resolve", action="append", type=int, default=[], metavar="N", help="resolve thread N"
        )
        parser.add_argument(
            "--reopen", action="append", type=int, default=[], metavar="N", help="open it again"
        )
        parser.add_argument("--commit", default="", metavar="ID", help="the result that you looked at")
        parser.add_argument("--diff", action="store_true", help="print the changes of the result")
        parser.add_argument("--web", action="store_true", help="open the changes in the browser")
        parser.add_argument("--here", action="store_true", help="do the requested changes in this terminal")
        add_terminal_arguments(parser)
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        task = find_task(options["task"], tasks=tasks_visible_to(principal))
        if options["diff"] or options["web"]:
            self._show_changes(task, options)
            return Exit.DONE
        threads = [
            *(_new_thread(text, Side.NEW) for text in options["comment"]),
            *(_new_thread(text, Side.OLD) for text in options["before"]),
        ]
        verdict = _verdict(options)
        if options["here"] and verdict != ReviewVerdict.REQUEST_CHANGES:
            raise BadInput("--here needs --request-changes", where="review")
        with transaction.atomic():  # what is refused at the end leaves nothing behind
            for number, text in options["reply"]:
                reply_to(_thread_numbered(task, number, where="--reply"), text, by=principal)
            for number in options["resolve"]:
                resolve(_thread_numbered(task, number, where="--resolve"), by=principal)
            for number in options["reopen"]:
                resolve(_thread_numbered(task, number, where="--reopen"), by=principal, reopen=True)
            if verdict != ReviewVerdict.COMMENT or threads or options["body"]:
                send_review(
                    task, verdict, by=principal, via=Channel.TERMINAL, body=options["body"], threads=threads,
                    commit=options["commit"], notify=not options["here"],
                )  # fmt: skip
        code = Exit.DONE
        if options["here"]:
            task.refresh_from_db()
            screen = self.screen_for(options)
            code = run_task_locally(task, principal, screen, may_prompt=not options["no_input"])
        task.refresh_from_db()
        self._show(task, options)
        return code

    def _show_changes(self, task: Task, options: dict[str, Any]) -> None:
        screen = self.screen_for(options)
        if options["web"]:
            open_page(absolute_url(reverse("task_diff", args=[task.pk])), screen)
            return
        changes = difference_of(task)
        if changes is None or task.head_commit == changes.base:
            screen.say(f"Task {task.pk} has changed no file.")
        else:
            show_diff(changes.diff(), screen)

    def _show(self, task: Task, options: dict[str, Any]) -> None:
        found = ReviewsOut.from_row(task)
        if options["json"]:
            self.write_json(found)
            return
        screen = self.screen_for(options)
        if not found.reviews:
            screen.say(f"Nobody has reviewed task {task.pk} yet: {task.title}")
        for review in found.reviews:
            _show_review(review, screen)
        if found.threads:
            screen.say("From the pull request", style="bold")
        for thread in found.threads:
            _show_thread(thread, screen)


def _verdict(options: dict[str, Any]) -> ReviewVerdict:
    if options["request_changes"]:
        return ReviewVerdict.REQUEST_CHANGES
    if options["approve"]:
        return ReviewVerdict.APPROVE
    return ReviewVerdict.COMMENT


def _new_thread(text: str, side: Side) -> NewThread:
    where = "--comment" if side == Side.NEW else "--before"
    placed = _PLACED.fullmatch(text)
    if placed is None:
        if side == Side.OLD:
            raise BadInput(f"{text!r} is not PATH:LINE: TEXT", where=where)
        return NewThread(text, where=where)
    first, last = int(placed["first"]), int(placed["last"] or placed["first"])
    return NewThread(placed["text"], placed["path"].strip(), side, last, first, where)


def _thread_numbered(task: Task, number: int | str, *, where: str) -> ReviewThread:
    digits = str(number)
    if digits.isdecimal() and len(digits) < 10:
        threads = task.threads.select_related("task__project", "review")
        if found := threads.filter(number=int(digits)).first():
            return found
    known = ", ".join(map(str, task.threads.numbers())) or "none"
    raise BadInput(f"there is no thread {digits}; the threads are: {known}", where=where)


_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}


def show_diff(text: str, screen: Screen) -> None:
    """Print a diff; its file headers (`diff`, `index`, `---`, `+++`) stand out."""
    for line in text.splitlines():
        style = _DIFF_STYLES.get(line[:1], "")
        if line.startswith(("--- ", "+++ ")):
            style = "bold"
        screen.say(line, style=style, wrap=False)


_AGENT = {
    "": "",
    "waiting": ", waits for the agent",
    "handed_over": ", being handed to the agent",
    "received": ", the agent has it",
    "answered": ", answered by the agent in run {run}",
}


_ENDED = ", ended: the code has changed, or a later review replaced it"


def _show_review(review: ReviewOut, screen: Screen) -> None:
    says = f"{review.author.name} {ReviewVerdict(review.verdict).label}"
    says += _AGENT[review.agent].format(run=review.answered_in)
    if review.verdict == ReviewVerdict.APPROVE and not review.holds:
        says += _ENDED
    screen.say(f"Review {review.number} · {says} · {review.commit[:10]}", style="bold")
    if review.body:
        screen.say(review.body, indent=2)
    for thread in review.threads:
        _show_thread(thread, screen)


def _show_thread(thread: ThreadOut, screen: Screen) -> None:
    place, state = thread.path or "the whole result", thread.state.label
    if thread.first_line:
        place += f":{thread.first_line}-{thread.line}"
    elif thread.line:
        place += f":{thread.line}"
    if thread.side == Side.OLD:
        place += ", before the change"
    if thread.outdated:
        state += ", outdated"
    screen.say(f"Thread {thread.number} · {place} · {state}", indent=2)
    for comment in thread.comments:
        screen.say(f"{comment.author}: {comment.text}", indent=4)
