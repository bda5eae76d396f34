"""The base class of commands for people: errors, exit codes and output (P12)."""

from __future__ import annotations

import json
import os
import sys
from argparse import RawDescriptionHelpFormatter
from enum import IntEnum
from typing import Any

from django.core.management.base import CommandParser, DjangoHelpFormatter
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from pydantic import BaseModel

from tasks_app.cli.plain_command import PlainCommand
from tasks_app.cli.terminal import Screen
from tasks_app.core.errors import (
    AnswerInvalid,
    AnswerTooLong,
    BadInput,
    CatHerderError,
    NotAllowed,
    SandboxUnavailable,
    WorkspaceError,
    WrongDataDirectory,
)
from tasks_app.core.types import Json
from tasks_app.history.audit import ActionOrigin, acting_from
from tasks_app.models import Channel, Sequence, Task
from tasks_app.models.database_errors import explain, is_unavailable
from tasks_app.operations.health import IS_SNAPSHOT, LEAVE_SNAPSHOT, SNAPSHOT
from tasks_app.schemas.sequences import outcome_of
from tasks_app.schemas.usage import HasForecast
from tasks_app.services.data_directory import require_own_data_dir


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    WAITING = 3
    INTERRUPTED = 130


#: Errors in how the command was called; every other CatHerderError is a failure.
_WRONG_USE = (
    BadInput, WorkspaceError, WrongDataDirectory, AnswerInvalid, AnswerTooLong, NotAllowed,
    SandboxUnavailable,
)  # fmt: skip


class _Help(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Help formatter that keeps the line breaks of descriptions and examples."""


class TerminalCommand(PlainCommand):
    """A command whose CatHerderErrors become one sentence on stderr and an exit code.

    Subclasses implement `work`. With `--json`, an error is also an object {error, exit_code} on stdout.
    """

    examples = ""
    #: Whether the command needs the portal's database.
    requires_tables = True

    def work(self, options: dict[str, Any]) -> int:
        """Run the command and return the exit code."""
        raise NotImplementedError

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(
            prog_name, subcommand, epilog=self.examples, formatter_class=_Help, **kwargs
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # escape characters that the terminal cannot encode
                stream.reconfigure(errors="backslashreplace")
        if code := self._run(options):
            sys.exit(code)

    def screen_for(self, options: dict[str, Any]) -> Screen:
        """Return the screen for progress: standard output, or with `--json` standard error."""
        if options.get("json"):
            return Screen.errors(no_color=options["no_color"])
        self.stdout.ending = ""
        return Screen(self.stdout, no_color=options["no_color"])

    def write_json(self, value: Json | BaseModel) -> None:
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        self.stdout.write(json.dumps(plain, ensure_ascii=False, indent=2) + "\n")

    def write_outcome(
        self, thing: Task | Sequence, code: Exit, *, forecast: HasForecast | None = None
    ) -> None:
        """Write the current state of a task or sequence, with the exit code, as JSON."""
        thing.refresh_from_db()
        self.write_json(outcome_of(thing, exit_code=int(code), forecast=forecast))

    def _run(self, options: dict[str, Any]) -> int:
        try:
            if self.requires_tables:
                require_tables()
                require_own_data_dir()
            with acting_from(ActionOrigin(via=Channel.TERMINAL)):
                code = self.work(options)
            self.stdout.flush()
        except CatHerderError as error:
            code = Exit.WRONG_USE if isinstance(error, _WRONG_USE) else Exit.FAILED
            return self._fail(str(error), code, options)
        except DatabaseError as error:
            if not is_unavailable(error):
                raise
            return self._fail(explain(error), Exit.FAILED, options)
        except KeyboardInterrupt:
            return self._fail("Interrupted.", Exit.INTERRUPTED, options)
        except BrokenPipeError:
            # The reader of the output has gone; Python would raise again when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.FAILED
        return code

    def _fail(self, message: str, code: int, options: dict[str, Any]) -> int:
        self.write_error(message, options)
        if options.get("json"):
            self.write_json({"error": message, "exit_code": int(code)})
        return code


def require_tables() -> None:
    """Raise BadInput if the database cannot be used or lacks migrations."""
    try:
        executor = MigrationExecutor(connection)
        is_snapshot = SNAPSHOT in executor.loader.applied_migrations
        unmigrated = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError as error:
        raise BadInput(explain(error)) from error
    if is_snapshot:
        raise BadInput(f"{IS_SNAPSHOT} {LEAVE_SNAPSHOT}")
    if unmigrated:
        raise BadInput("The database is not prepared for this version. Start the portal once: cat-herder up")
