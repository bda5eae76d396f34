"""Files of a project's repository that a new task can be made from."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

_COMMIT = "The newest commit that the portal has of the project's branch."


class TaskFiles(Schema):
    commit: str = Field(description=_COMMIT)
    items: list[str] = Field(description="Paths, seen from the top of the repository.")
    more: int = Field(description="How many were left out.")


class FileText(Schema):
    commit: str = Field(description=_COMMIT)
    path: str = Field(description="The file.")
    text: str = Field(description="What is in it.")


class Folder(Schema):
    """A folder that may be a sequence."""

    folder: str = Field(description="Its path, seen from the top of the repository.")
    tasks: list[str] = Field(description="Its task files in the order in which they would run.")


class Folders(Schema):
    commit: str = Field(description=_COMMIT)
    items: list[Folder] = Field(description="Folders by their path.")
    more: int = Field(description="How many were left out.")
