"""JSON models of files in a repository from which tasks can be created."""

from __future__ import annotations

from pydantic import Field

from tasks_app.reporting.schemas.base import Out

_COMMIT = "The newest commit that the portal has of the project's branch."


class TaskFiles(Out):
    commit: str = Field(description=_COMMIT)
    items: list[str] = Field(description="Paths, seen from the top of the repository.")
    more: int = Field(description="How many were left out.")


class FileText(Out):
    commit: str = Field(description=_COMMIT)
    path: str = Field(description="The file.")
    text: str = Field(description="What is in it.")


class Folder(Out):
    """A folder from which a sequence can be created."""

    folder: str = Field(description="Its path, seen from the top of the repository.")
    tasks: list[str] = Field(description="Its task files in the order in which they would run.")


class Folders(Out):
    commit: str = Field(description=_COMMIT)
    items: list[Folder] = Field(description="Folders by their path.")
    more: int = Field(description="How many were left out.")
