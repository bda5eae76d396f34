"""Pipelines as they are written in `cat-herder.yaml`, before anything of them is validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks_app.config.faults import Location


@dataclass(frozen=True)
class WrittenPipeline:
    """A pipeline with its place in the file: a list of steps, or a mapping with the key `steps`."""

    place: Location
    value: object

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def steps_place(self) -> Location:
        return (*self.place, "steps") if self.is_mapping else self.place

    @property
    def steps(self) -> object:
        if isinstance(self.value, dict):
            return self.value.get("steps")
        return self.value

    @property
    def publish(self) -> dict[str, object]:
        """The key `publish` if it is a mapping, else nothing."""
        found = self.value.get("publish") if isinstance(self.value, dict) else None
        return found if isinstance(found, dict) else {}

    def each_step(self) -> Iterator[tuple[Location, dict[str, object]]]:
        """Yield every step that has the form of one, with its place."""
        for index, step in enumerate(self.steps if isinstance(self.steps, list) else ()):
            if isinstance(step, dict):
                yield (*self.steps_place, index), step


def written_pipelines(value: object) -> Iterator[WrittenPipeline]:
    """Yield the pipelines in the plain value of a file; none if it has another form."""
    pipelines = value.get("pipelines") if isinstance(value, dict) else None
    for name, pipeline in pipelines.items() if isinstance(pipelines, dict) else ():
        yield WrittenPipeline(("pipelines", name), pipeline)
