"""The ask spool: questions that `cat-herder ask` stored because the run could not be halted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tasks_app.agent.spool import SpooledDocument, clear_folder, spooled_documents
from tasks_app.core.types import Ask, AskItem

FOLDER = "asked"
_MAX_QUESTIONS = 20


def spool_folder(home: Path) -> Path:
    return home / FOLDER


def clear_spool(home: Path) -> None:
    """Empty the folder for the next run. Earlier questions must be stored in the database by then."""
    clear_folder(home, FOLDER)


def spooled_asks(home: Path) -> list[Ask]:
    """Return the questions in the order asked. They stay until `clear_spool`, so that a crash loses none."""
    documents = spooled_documents(home, FOLDER, limit=10 * _MAX_QUESTIONS)
    return [ask for document in documents for ask in _read_ask(document)][:_MAX_QUESTIONS]


def _read_ask(document: SpooledDocument) -> Iterator[Ask]:
    with suppress(AttributeError, KeyError, TypeError):
        if question := str(document.content["question"]).strip():
            about_goal = document.content.get("about") == "goal"
            yield Ask(f"noted-{document.key}", "command", (AskItem(question),), about_goal=about_goal)
