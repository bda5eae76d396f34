"""The checks that decide whether a step is done, as `cat-herder.yaml` writes them (SPEC P1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field

from tasks_app.config.fields import FileModel, InsidePath, Seconds, ShellCommand


class NoCheck(FileModel):
    """The step is done when its agent ends."""

    type: Literal["none"]


class FileExistsCheck(FileModel):
    """The step is done when the file is there, in the task's workspace."""

    type: Literal["fileExists"]
    path: InsidePath = Field(description="A file, relative to the repository.")


class ShellCheck(FileModel):
    """The step is done when the command ends as expected, in the task's workspace."""

    type: Literal["shell"]
    command: ShellCommand = Field(description="A command line for the shell.")
    expect: Literal["pass", "fail"] = Field(
        default="pass", description="Whether the command must end with 0 or not."
    )
    timeout: Seconds | None = Field(default=None, description='Seconds, or words such as "90s", "15m".')


Check: TypeAlias = Annotated[NoCheck | FileExistsCheck | ShellCheck, Discriminator("type")]


def _as_list(value: object) -> object:
    if value is None:
        return []
    return [value] if isinstance(value, (Mapping, FileModel)) else value


Checks: TypeAlias = Annotated[
    tuple[Check, ...], BeforeValidator(_as_list, json_schema_input_type=Check | list[Check])
]
