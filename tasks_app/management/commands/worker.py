"""`cat-herder worker`: work on tasks until told to stop."""

from __future__ import annotations

import logging
import os
import signal
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import connection
from huey.contrib.djhuey import HUEY

from tasks_app import composition, tasks
from tasks_app.cli.plain_command import PlainCommand
from tasks_app.core.errors import CatHerderError, WrongDataDirectory
from tasks_app.core.wakeup import Pipe
from tasks_app.engine.calendars import CalendarReader
from tasks_app.engine.publishing.publisher import Publisher
from tasks_app.engine.sweeper import Sweeper
from tasks_app.engine.traces.span_exporter import start_exporter
from tasks_app.engine.workers.heartbeat import Heartbeat
from tasks_app.engine.workers.intake import STARTING, Found, Intake, PunctualScheduler, TakingConsumer
from tasks_app.engine.workspaces.housekeeping import Housekeeper
from tasks_app.management.preconditions import database_errors_as_sentences, require_git, require_services
from tasks_app.management.worker_options import (
    add_drain_options,
    add_labels_option,
    drain_or_take_again,
    labels_option,
)
from tasks_app.models import Installation, paths
from tasks_app.notifications.delivery import Dispatcher
from tasks_app.operations.fitness import worker_problem
from tasks_app.operations.open_services import require_closed_services
from tasks_app.services.data_directory import holds_portal, require_shared_data_dir

logger = logging.getLogger(__name__)

#: How far the worker stands back behind the web server; agents stand back further (`sandbox.limits`). The
#: kernel derives from it who goes first at the disk as well.
NICE = 5
#: Seconds for putting runs back after the worker was told to stop.
STOP_SECONDS = 20


class Command(PlainCommand):
    help = "Works on tasks until it is told to stop (the portal's second process; `up` starts it)."

    def add_arguments(self, parser: CommandParser) -> None:
        add_drain_options(parser)
        add_labels_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if drain_or_take_again(self.stdout, **options):
            return
        tasks.labels = labels_option(options["labels"])
        try:
            # CATHERDER_SANDBOX=require must stop the start, not the first task.
            sandbox = composition.worker_sandbox()
            require_git()
            require_services()
            require_closed_services()  # `up` prints open services; here only forbidden ones matter
            with database_errors_as_sentences():
                _require_tables()
                _require_data_dir()
        except CatHerderError as error:
            raise CommandError(str(error), returncode=2) from None
        os.nice(NICE)
        connection.keep_after_close()  # type: ignore[attr-defined]
        found = Found(tasks.look_at.func)
        sweeper = Sweeper(
            found.put, pending=found.count, labels=tasks.labels_here, before=tasks.passing_on.forget
        )
        intake = Intake(STARTING)  # the first beat opens it, or says why not
        tasks.intake = intake
        heartbeat = Heartbeat(
            slots=settings.ENVIRONMENT.workers,
            intake=intake,
            find_problem=worker_problem,
            find_labels=tasks.labels_here,
            sandbox=sandbox,
        )
        heartbeat.start()
        if settings.ENVIRONMENT.worker_token:
            if not has_opened(intake):  # jobs are signed with a key that the portal gives to this host
                heartbeat.stop()
                return
            self._say_what_is_left_to_the_portal()
        others: list[CalendarReader | Dispatcher | Publisher | Housekeeper] = [Housekeeper(lambda: sandbox)]
        if not settings.ENVIRONMENT.worker_token:
            others += [CalendarReader(), Dispatcher(), Publisher(intake)]
        exporter = start_exporter()
        sweeper.start()
        for thread in others:
            thread.start()
        try:
            _consumer(intake, found).run()
        finally:
            sweeper.stop()
            for thread in others:
                thread.stop()
            if exporter is not None:
                exporter.stop()
            heartbeat.stop()

    def _say_what_is_left_to_the_portal(self) -> None:
        environment = settings.ENVIRONMENT
        self.stdout.write(
            f"Worker host {environment.worker_name} of the portal at {environment.address} works on tasks. "
            "Publishing, pull requests, calendars and notifications need the installation's secret key and "
            "are left to the worker of the portal's host."
        )
        self.stdout.flush()


def _require_tables() -> None:
    """Require a database that a portal has prepared, of whichever version."""
    if Installation._meta.db_table not in connection.introspection.table_names():
        raise CommandError(
            "The database has no tables yet. Start the portal first: `up` prepares the database.",
            returncode=2,
        )


def has_opened(intake: Intake) -> bool:
    """Wait until the intake opens. Return False if a signal ends the worker before."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        intake.wait_until_opened()
    except KeyboardInterrupt:
        return False
    finally:
        signal.signal(signal.SIGTERM, former)
    return True


def _require_data_dir() -> None:
    """Require that this worker's data directory is its portal's, or that of a worker host with a token.

    Raises WrongDataDirectory.
    """
    if not settings.ENVIRONMENT.worker_token:
        require_shared_data_dir()
    elif holds_portal(paths.data_dir()):
        raise WrongDataDirectory(
            f"{paths.data_dir()} is the data directory of a portal. A worker host needs another one, or no "
            "CATHERDER_WORKER_TOKEN."
        )


class _StoppingConsumer(TakingConsumer):
    """A consumer that asks runs to put themselves back on a signal, and waits for them with a timeout."""

    scheduler_class = PunctualScheduler

    def _handle_signal(self, signum: int, frame: FrameType | None) -> None:
        tasks.stopping.set()
        super()._handle_signal(signum, frame)


def _consumer(intake: Intake, found: Found) -> _StoppingConsumer:
    pipes = getattr(HUEY.storage, "pipes", None)  # Redis wakes its workers itself
    consumer = _StoppingConsumer(
        HUEY,
        intake=intake,
        found=found,
        pipe=None if pipes is None else Pipe(pipes),
        workers=settings.ENVIRONMENT.workers,
        worker_type="thread",
        periodic=False,
        graceful_signal="TERM",
        shutdown_timeout=STOP_SECONDS,
    )
    # `up` and a terminal send both; either way runs are put back before the process ends.
    consumer._signal_actions[signal.SIGINT] = (False, True)
    return consumer
