"""Faults of pipelines and limits that only several values together show.

They are looked for in the raw values of the file, so that a fault of one key hides none of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tasks_app.config.faults import Location, Problem, did_you_mean, key_path, shown
from tasks_app.config.repository_settings import soft_limit_fault
from tasks_app.config.yaml_text import WrittenPipeline, YamlDocument, written_pipelines

SELF = "self"


def pipeline_problems(document: YamlDocument, *, built_in: str) -> list[Problem]:
    """Return faults of pipelines: no steps, equal names, `self` beside other steps, an unknown default; and a
    soft cost limit that is not below the hard one.

    `built_in` is the name of the pipeline that a file without any has.
    """
    if not isinstance(document.value, dict):
        return []
    pipelines = document.value.get("pipelines", {built_in: None})
    return [
        *_all_pipelines(document, pipelines),
        *_default_pipeline(document, document.value, pipelines),
        *_soft_limit(document, document.value.get("limits")),
    ]


def _problem(document: YamlDocument, location: Location, message: str) -> Problem:
    return Problem(document.line_of(location), key_path(location), message)


def _all_pipelines(document: YamlDocument, pipelines: object) -> Iterator[Problem]:
    if pipelines in (None, {}):
        yield _problem(
            document, ("pipelines",), "must hold a pipeline; without the key the default one is used"
        )
    else:
        for pipeline in written_pipelines(document.value):
            yield from _one_pipeline(document, pipeline)
            yield from _publish_without_pull_request(document, pipeline)


def _one_pipeline(document: YamlDocument, pipeline: WrittenPipeline) -> Iterator[Problem]:
    place, steps = pipeline.steps_place, pipeline.steps
    if steps in (None, []):
        yield _problem(document, place, "must have at least one step")
    elif isinstance(steps, list):
        yield from _same_names(document, place, steps)
        yield from _self_among_others(document, place, steps)


def _publish_without_pull_request(document: YamlDocument, pipeline: WrittenPipeline) -> Iterator[Problem]:
    publish = pipeline.publish
    if publish.get("pullRequest"):
        return
    for key in ("draft", "reviewers"):
        if publish.get(key):
            yield _problem(document, (*pipeline.place, "publish", key), "needs pullRequest: true beside it")


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


def _soft_limit(document: YamlDocument, limits: object) -> Iterator[Problem]:
    values = limits if isinstance(limits, dict) else {}
    soft, hard = _number(values.get("softCostUsd")), _number(values.get("maxCostUsd"))
    if message := soft_limit_fault(soft, hard=hard):
        yield _problem(document, ("limits", "softCostUsd"), message)


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


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
