"""What of a worker's machine a project may name: toolchains, and folders to read.

One of the modules of keys, each apart from `pipeline.py`, which brings them together.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator

from tasks_app.config.faults import fault, shown
from tasks_app.config.fields import Line, as_list
from tasks_app.core.environment_values import TOOLCHAIN, is_readable_folder

MOST_ENTRIES = 10


def _check_toolchain(name: str) -> str:
    if not re.fullmatch(TOOLCHAIN, name):
        raise fault(f"must be the name of a toolchain, such as rust or node, not {shown(name)}")
    return name


def _check_few(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MOST_ENTRIES:
        raise fault(f"must have at most {MOST_ENTRIES} entries, not {len(names)}")
    return names


def _check_readable(folder: str) -> str:
    if not is_readable_folder(folder):
        raise fault(f"must be a folder such as /srv/datasets or ~/.m2/repository, not {shown(folder)}")
    return folder.rstrip("/")


T = TypeVar("T")
_Few = Annotated[
    tuple[T, ...],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    AfterValidator(_check_few),
]
Toolchains = _Few[Annotated[Line, AfterValidator(_check_toolchain)]]
ReadableFolders = _Few[Annotated[Line, AfterValidator(_check_readable)]]
