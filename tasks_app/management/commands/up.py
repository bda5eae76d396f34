"""`cat-herder up`: start the whole portal."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import IO, Any, NoReturn

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser
from django.db import connections

from tasks_app.cli.plain_command import PlainCommand
from tasks_app.core.environment import BASE_DIR, in_checkout, misspelt_variables
from tasks_app.core.environment_values import Bind
from tasks_app.core.errors import CatHerderError
from tasks_app.core.files import store_url
from tasks_app.core.labels import Labels, labels_as_stored
from tasks_app.management.first_start import NewAdmin, ensure_admin, ensure_sample
from tasks_app.management.preconditions import (
    database_errors_as_sentences,
    exclusive_data_dir,
    require_git,
    require_services,
)
from tasks_app.management.supervisor import Child, Plan, become_supervisor, listen
from tasks_app.management.worker_options import add_labels_option, labels_option
from tasks_app.operations import local_sandbox
from tasks_app.operations.open_services import require_closed_services
from tasks_app.services.data_directory import require_own_data_dir, require_plausible_data_dir

#: Limit of open files of the web server, which needs one for each connection.
WEB_FILE_LIMIT = 65_536


class Command(PlainCommand):
    help = (
        "Starts the portal: brings the database up to date, creates the first admin and a sample project, "
        "then runs the web server and the worker until Ctrl+C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-sample", action="store_true", help="do not add the sample project")
        parser.add_argument(
            "--no-worker",
            action="store_true",
            help="start no worker; `worker` starts one, as another service of this machine",
        )

        add_labels_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        labels = None
        if options["labels"] is not None:
            labels = labels_option(options["labels"])
        for sentence in misspelt_variables(os.environ):
            self.stderr.write(sentence)
        with exclusive_data_dir() as lock:
            listener, admin = self._prepare(sample=not options["no_sample"])
            if options["no_worker"]:  # otherwise the worker does it
                from tasks_app.engine.workspaces.housekeeping import (  # takes 0.3 s
                    log_removed,
                    remove_abandoned_folders,
                )

                for one in remove_abandoned_folders():
                    log_removed(one)
            self._supervise(listener, lock, admin, worker=not options["no_worker"], labels=labels)

    def _prepare(self, *, sample: bool) -> tuple[socket.socket, NewAdmin | None]:
        """Return the socket on which the portal will listen, and the admin if this start has created them."""
        try:
            sandbox = local_sandbox.sandbox()
            listener = _listen()
            require_git()
            require_services()
            open_services = require_closed_services()
            with database_errors_as_sentences():
                require_plausible_data_dir()
                call_command("migrate", verbosity=0, interactive=False)
                require_own_data_dir()
                admin = ensure_admin()
        except CatHerderError as error:
            raise CommandError(str(error), returncode=2) from None
        if sample:
            try:
                if ensure_sample():
                    self._say("There is a sample project with a task; start it with one click.")
            except CatHerderError as error:
                self._say(f"The sample project could not be created: {error}")
        for sentence in open_services:
            self._say(f"Reachable for agents: {sentence}")
        self._print_start(sandbox.reason)
        return listener, admin

    def _supervise(
        self,
        listener: socket.socket,
        lock: IO[str],
        admin: NewAdmin | None,
        *,
        worker: bool,
        labels: Labels | None,
    ) -> NoReturn:
        host, port, *_ = listener.getsockname()
        bound = Bind(host=host, port=port)
        store_url(Path(settings.DATA_DIR), bound.address)
        ready = f"Cat Herder is ready at {settings.ENVIRONMENT.url or f'{bound.address}/'}  (Ctrl+C stops it)"
        if admin:
            ready += f"\n  User      {admin.username}"
            if admin.password:
                ready += f"\n  Password  {admin.password}  (shown only this once)"
            else:
                ready += "\n  Password  that of CATHERDER_ADMIN_PASSWORD"
        plan = Plan(children(listener, worker=worker, labels=labels), bound.here, bound.port, ready)
        connections.close_all()
        become_supervisor(plan, inherited=[listener.fileno(), lock.fileno()])

    def _print_start(self, no_sandbox: str) -> None:
        self._say(f"Data directory: {settings.DATA_DIR}")
        if settings.ENVIRONMENT.rehearsal:
            self._say(
                "Rehearsal: the agent is the real Claude Code, the model behind it is a script. "
                "Set ANTHROPIC_API_KEY (or CLAUDE_CODE_OAUTH_TOKEN) for the real model."
            )
        if no_sandbox:
            self._say(f"No sandbox: {no_sandbox} Agents can do whatever this user can.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def children(listener: socket.socket, *, worker: bool = True, labels: Labels | None = None) -> list[Child]:
    """Return the web server on the given socket, and the worker unless it is a service of its own."""
    web = [sys.executable, "-P", "-m", "uvicorn", "--app-dir", str(settings.BASE_DIR)]
    web += ["catherder_site.asgi:application", "--fd", str(listener.fileno())]
    web += ["--lifespan", "on", "--no-access-log", "--log-level", "warning"]
    web += ["--timeout-graceful-shutdown", "3", *server_options()]
    server = Child("web server", web, fds=(listener.fileno(),), file_limit=WEB_FILE_LIMIT)
    if not worker:
        return [server]
    words = ["worker"]
    if labels is not None:
        words.append(f"--labels={labels_as_stored(labels)}")
    return [server, Child("worker", _in_new_process(*words))]


def server_options() -> list[str]:
    """Return the options of uvicorn that `asgi_layers` relies on.

    No proxy headers: uvicorn would replace the peer's IP address, which must be checked first;
    `asgi_layers/proxies.py` replaces it afterwards.
    """
    connections = "tasks_app.asgi_layers.connection_limits"
    options = ["--no-proxy-headers", "--http", f"{connections}:Connection", "--ws", f"{connections}:Socket"]
    # In a burst, this many connections are accepted before the first of them can be counted.
    return [*options, "--backlog", "128", "--ws-max-size", "65536"]


def _listen() -> socket.socket:
    bind = settings.ENVIRONMENT.bind
    try:
        return listen(bind.host, bind.port)
    except OSError as error:
        raise CommandError(
            f"CATHERDER_BIND: {bind.host}:{bind.port} cannot be used ({error.strerror}). "
            "Choose another, for example CATHERDER_BIND=127.0.0.1:8001 cat-herder up",
            returncode=2,
        ) from None


def _in_new_process(*arguments: str) -> list[str]:
    """Return the command line that runs a command of this installation in a process of its own.

    `-P` because the folder in which the portal was started must not supply modules.
    """
    manage = Path(BASE_DIR, "manage.py")
    program = [str(manage)] if in_checkout() else ["-P", "-m", "catherder_site"]
    return [sys.executable, *program, *arguments]
