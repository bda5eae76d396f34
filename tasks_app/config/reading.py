"""Validate a YAML document with a model; pydantic's errors become errors with lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tasks_app.config.faults import ConfigInvalid, Location, Problem, describe, did_you_mean, key_path
from tasks_app.config.fields import FileModel
from tasks_app.config.written import written_pipelines
from tasks_app.config.yaml_text import YamlDocument

Model = TypeVar("Model", bound=FileModel)


def read_model(
    model: type[Model],
    document: YamlDocument,
    *,
    where: str,
    keys_at: Callable[[Location], type[FileModel]],
    also: Iterable[Problem] = (),
) -> Model:
    """Return the model that a document holds; an empty document holds its defaults.

    `keys_at` gives the model around an unknown key, for "did you mean"; `also` are faults found elsewhere.
    Raises `ConfigInvalid` with all faults, at most one for each key.
    """
    problems = [*document.problems, *also]
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        top = Problem(document.line_of(()), "", "the file must be a mapping of keys to values")
        raise ConfigInvalid([*problems, top], where=where)
    read: Model | None = None
    try:
        # Only the file's own spelling counts: `task_folder` is an unknown key, not another `taskFolder`.
        read = model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems += [_problem_of(one, document, keys_at) for one in error.errors()]
    if read is None or problems:
        raise ConfigInvalid(_one_for_each_key(problems), where=where)
    return read


def _one_for_each_key(problems: Iterable[Problem]) -> list[Problem]:
    """Keep the first error of each key: an empty key, for example, also has the wrong type."""
    by_key: dict[tuple[int | None, str], Problem] = {}
    for problem in problems:
        by_key.setdefault((problem.line, problem.key), problem)
    return list(by_key.values())


def _problem_of(
    error: ErrorDetails, document: YamlDocument, keys_at: Callable[[Location], type[FileModel]]
) -> Problem:
    location = _as_written(error["loc"], document)
    message = describe(error)
    if error["type"] == "extra_forbidden":
        message = f"is not a known key{did_you_mean(str(location[-1]), file_keys(keys_at(error['loc'])))}"
    return Problem(document.line_of(location), key_path(location), message)


def file_keys(model: type[FileModel]) -> list[str]:
    """Return the keys of a model as they are written in the file."""
    return [str(field.validation_alias or name) for name, field in model.model_fields.items()]


def _as_written(location: Location, document: YamlDocument) -> Location:
    """Return the place in the file, without what the model added to it.

    That is pydantic's mark for keys, `steps` of a pipeline that is a list, a check's type, and the list made
    of one check.
    """
    if location[-1] == "[key]":
        return location[:-1]
    at = 3  # of the key of a step
    if location[0] == "pipelines" and location[2:3] == ("steps",):
        if location[:2] in {one.place for one in written_pipelines(document.value) if one.is_mapping}:
            at = 4
        else:
            location = (*location[:2], *location[3:])
    if location[at : at + 1] != ("check",):
        return location
    check = location[: at + 1]
    in_list = (*check, 0) in document.lines
    return (*check, *(location[at + 1 : at + 2] if in_list else ()), *location[at + 3 :])
