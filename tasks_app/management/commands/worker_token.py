"""`cat-herder worker_token`: tokens of worker hosts."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument
from tasks_app.models import WorkerToken
from tasks_app.services.workers.hosts import make_worker_token, revoke_worker_token


class Command(TerminalCommand):
    help = """\
Creates the token with which workers on a host of its own reach this portal, and prints it once. With --revoke
it opens nothing any more. Without a name, the worker hosts that have a token are listed."""
    examples = """\
examples:
  cat-herder worker_token build-2              then, on that host: CATHERDER_WORKER_TOKEN=… cat-herder worker
  cat-herder worker_token --revoke build-2
  cat-herder worker_token"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default="", help="a name for the host, such as build-2")
        parser.add_argument("--revoke", action="store_true", help="revoke the token of this host")
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        name, revoke = options["name"], options["revoke"]
        if not name:
            return self._list(revoke=revoke)
        principal = acting_principal(options["username"])
        if revoke:
            revoke_worker_token(name, by=principal)
            self.stdout.write(f"The token of {name} is revoked.")
        else:
            self.stdout.write(make_worker_token(name, by=principal))
            self.stderr.write("It is shown only this once. On the host, set CATHERDER_WORKER_TOKEN to it.")
        return Exit.DONE

    def _list(self, *, revoke: bool) -> int:
        if revoke:
            self.stderr.write("Name the worker host whose token is to be revoked.")
            return Exit.WRONG_USE
        tokens = list(WorkerToken.objects.all())
        for token in tokens:
            self.stdout.write(f"{token.name}  since {token.made_at:%Y-%m-%d}")
        if not tokens:
            self.stderr.write("No worker host has a token.")
        return Exit.DONE
