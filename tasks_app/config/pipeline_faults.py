"""Faults of pipelines that only several values together show.

They are looked for in the raw values of the file, so that a fault of one key hides none of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tasks_app.config.faults import Location, Problem, did_you_mean, key_path, shown
from tasks_app.config.yaml_text import YamlDocument

SELF = "self"


def pipeline_problems(document: YamlDocument, *, built_in: str) -> list[Problem]:
    """Empty pipelines, steps of one name, `self` beside other steps, a `defaultPipeline` that is not there.

    `built_in` is the name of the pipeline that a file without any has.
    """
    if not isinstance(document.value, dict):
        return []
    pipelines = document.value.get("pipelines", {built_in: None})
    return [*_all_pipelines(document, pipelines), *_default_pipeline(document, document.value, pipelines)]


def _problem(document: YamlDocument, location: Location, message: str) -> Problem:
    return Problem(document.line_of(location), key_path(location), message)


def _all_pipelines(document: YamlDocument, pipelines: object) -> Iterator[Problem]:
    if pipelines in (None, {}):
        yield _problem(
            document, ("pipelines",), "must hold a pipeline; without the key the default one is used"
        )
    elif isinstance(pipelines, dict) and ("pipelines",) in document.lines:
        for name, steps in pipelines.items():
            yield from _one_pipeline(document, ("pipelines", name), steps)


def _one_pipeline(document: YamlDocument, place: Location, steps: object) -> Iterator[Problem]:
    if steps in (None, []):
        yield _problem(document, place, "must have at least one step")
    elif isinstance(steps, list):
        yield from _same_names(document, place, steps)
        yield from _self_among_others(document, place, steps)


def _same_names(document: YamlDocument, place: Location, steps: list[object]) -> Iterator[Problem]:
    first: dict[str, int | None] = {}
    for index, step in enumerate(steps):
        name = step.get("name") if isinstance(step, dict) else None
        if not isinstance(name, str):
            continue
        location = (*place, index, "name")
        if name in first:
            yield _problem(
                document, location, f"is {shown(name)}, as in line {first[name]}; names must differ"
            )
        first.setdefault(name, document.line_of(location))


def _self_among_others(document: YamlDocument, place: Location, steps: list[object]) -> Iterator[Problem]:
    for index, step in enumerate(steps):
        if len(steps) > 1 and isinstance(step, dict) and step.get("command") == SELF:
            message = f"is {SELF}, which only a pipeline of one step may use; this one has {len(steps)}"
            yield _problem(document, (*place, index, "command"), message)


def _default_pipeline(
    document: YamlDocument, settings: dict[str, object], pipelines: object
) -> Iterator[Problem]:
    name = settings.get("defaultPipeline")
    known: Collection[str] = pipelines if isinstance(pipelines, dict) else ()
    if isinstance(name, str) and name not in known:
        listed = f"known are: {', '.join(known) or 'none'}{did_you_mean(name, known)}"
        yield _problem(
            document, ("defaultPipeline",), f"is {shown(name)}, which is no pipeline of this file; {listed}"
        )
