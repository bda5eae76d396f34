"""The option `--labels` of the commands that start a worker."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from tasks_app.core.labels import Labels, labels_from_text


def add_labels_option(parser: CommandParser) -> None:
    parser.add_argument(
        "--labels",
        metavar="LABELS",
        help="what the worker has, as steps ask for it in runsOn, with commas: gpu,linux "
        "(instead of CATHERDER_WORKER_LABELS)",
    )


def labels_option(given: str | None) -> Labels:
    """Return the labels of the option, else those of the variable. Raises CommandError."""
    if given is None:
        return frozenset(settings.ENVIRONMENT.worker_labels)
    try:
        return frozenset(labels_from_text(given))
    except ValueError as error:
        raise CommandError(f"--labels: {error}", returncode=2) from None
