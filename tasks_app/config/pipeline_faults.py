"""Faults of pipelines and limits that only several values together show.

They are looked for in the raw values of the file, so that a fault of one key hides none of these.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks_app.config.faults import Location, Problem, did_you_mean, key_path, shown
from tasks_app.config.repository_settings import soft_limit_fault
from tasks_app.config.yaml_text import WrittenPipeline, YamlDocument, written_pipelines

SELF = "self"


def pipeline_problems(document: YamlDocument, *, built_in: str) -> list[Problem]:
    """Return faults of pipelines: no steps, equal names, `self` beside other steps, an unknown default; and a
    soft cost limit that is not below the hard one.

    `built_in` is the name of the pipeline that a file without any has.
    """
    settings = document.value
    if not isinstance(settings, dict):
        return []
    faults: list[tuple[Location, str]] = []
    pipelines = settings.get("pipelines", {built_in: None})
    if pipelines in (None, {}):
        faults.append((("pipelines",), "must hold a pipeline; without the key the default one is used"))
    for pipeline in written_pipelines(settings):
        faults += _faults_of(document, pipeline)
    name, known = settings.get("defaultPipeline"), ()
    if isinstance(pipelines, dict):
        known = tuple(pipelines)
    if isinstance(name, str) and name not in known:
        listed = f"known are: {', '.join(known) or 'none'}{did_you_mean(name, known)}"
        message = f"is {shown(name)}, which is no pipeline of this file; {listed}"
        faults.append((("defaultPipeline",), message))
    limits = settings.get("limits")
    if isinstance(limits, dict):
        soft, hard = _number(limits.get("softCostUsd")), _number(limits.get("maxCostUsd"))
        if why := soft_limit_fault(soft, hard=hard):
            faults.append((("limits", "softCostUsd"), why))
    return [Problem(document.line_of(place), key_path(place), message) for place, message in faults]


def _faults_of(document: YamlDocument, pipeline: WrittenPipeline) -> Iterator[tuple[Location, str]]:
    place, steps = pipeline.steps_place, pipeline.steps
    if steps in (None, []):
        yield place, "must have at least one step"
    first: dict[str, int | None] = {}
    for location, step in pipeline.each_step():
        if isinstance(name := step.get("name"), str):
            at = (*location, "name")
            if name in first:
                yield at, f"is {shown(name)}, as in line {first[name]}; names must differ"
            first.setdefault(name, document.line_of(at))
        if step.get("command") == SELF and isinstance(steps, list) and len(steps) > 1:
            message = f"is {SELF}, which only a pipeline of one step may use; this one has {len(steps)}"
            yield (*location, "command"), message
    publish = pipeline.publish
    for key in ("draft", "reviewers"):
        if publish.get(key) and not publish.get("pullRequest"):
            yield (*pipeline.place, "publish", key), "needs pullRequest: true beside it"


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
