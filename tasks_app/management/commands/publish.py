"""`cat-herder publish`: publish the result of a task, and wait for the outcome."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_task_or_sequence
from tasks_app.core.errors import BadInput
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.models import Channel, Publication, PublicationState, Sequence
from tasks_app.schemas.publishing import PublicationOut
from tasks_app.schemas.reviews import review_out
from tasks_app.services.publishing.publications import publish
from tasks_app.services.publishing.pull_requests import let_agent_merge
from tasks_app.services.sequences import task_to_publish

_POLL_SECONDS = 0.2


class Command(TerminalCommand):
    help = """\
Publishes the result of a task that is done: pushes its branch to the repository that the project publishes
to, by default its source. Prints what that repository answered.

A branch that somebody else pushed to, the default branch and protected branches are never overwritten."""
    examples = """\
exit codes: 0 published (or published before), 1 not published or without pull request, 2 wrong usage

examples:
  cat-herder publish 12
  cat-herder publish billing/rounding --squash
  cat-herder publish sequence:3
  cat-herder publish sequence:3 --let-agent-merge
  cat-herder publish billing/rounding --pull-request --draft --reviewer octocat"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", help="a task's id, PROJECT/TASK, or sequence:ID")
        parser.add_argument("--squash", action="store_true", help="one commit instead of the checkpoints")
        parser.add_argument(
            "--message", metavar="TEXT", default="",
            help="the message of that commit; without it, what the task changed by its agent's account",
        )  # fmt: skip
        parser.add_argument(
            "--update", action="store_true", help="first merge the newest commit of the project's branch"
        )
        parser.add_argument(
            "--pull-request", action="store_true", help="open a pull request, or update the one that is open"
        )
        parser.add_argument("--draft", action="store_true", help="open it as a draft")
        parser.add_argument(
            "--reviewer", metavar="NAME", action="append", default=[],
            help="ask this user of the forge for a review of it; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--let-agent-merge", action="store_true",
            help="do not publish, but ask the agent to merge the project's branch, which conflicts",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        found = find_task_or_sequence(options["task"], principal=principal)
        task = task_to_publish(found) if isinstance(found, Sequence) else found
        if options["let_agent_merge"]:
            if any(
                options[name] for name in ("squash", "message", "update", "pull_request", "draft", "reviewer")
            ):
                raise BadInput("--let-agent-merge publishes nothing, so it takes no option of a publication.")
            review = let_agent_merge(task, by=principal, via=Channel.TERMINAL)
            if options["json"]:
                self.write_json(review_out(review))
            else:
                self.stdout.write(f"Task {task.pk} resumes in the portal with this request:\n\n{review.body}")
            return Exit.DONE
        publication = publish(
            task,
            by=principal,
            squash=options["squash"],
            update=options["update"],
            pull_request=options["pull_request"],
            draft=options["draft"],
            reviewers=options["reviewer"],
            message=options["message"],
        )
        # Here, or the worker does it that has begun.
        while publication.is_pending:
            if not carry_out(publication.pk):
                time.sleep(_POLL_SECONDS)
            publication.refresh_from_db()
        if options["json"]:
            self.write_json(PublicationOut.from_row(publication))
        else:
            self._report(publication)
        done = publication.state == PublicationState.PUSHED and not publication.fault
        return Exit.DONE if done else Exit.FAILED

    def _report(self, publication: Publication) -> None:
        if publication.state != PublicationState.PUSHED:
            self.stderr.write(f"Not published. {publication.answer}")
            return
        self.stdout.write(
            f"Published {publication.published_commit} as {publication.branch} to {publication.url}."
        )
        if publication.answer:
            self.stdout.write(publication.answer)
        if row := publication.opened:
            self.stdout.write(f"Pull request {row}: {row.web_url}")
        if publication.fault:
            self.stderr.write(publication.fault)
