"""The key `publish` of a pipeline: how results are published by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from tasks_app.config.faults import fault, shown
from tasks_app.config.fields import MOST_REVIEWERS, FileModel, Flag, Reviewer
from tasks_app.core.types import JsonObject


class PublishConfig(FileModel):
    """How the result of a task is published by itself when the task is done."""

    squash: Flag = Field(default=False, description="Publish one commit instead of the checkpoints.")
    update: Flag = Field(
        default=False, description="First merge the newest commit of the branch that tasks start from."
    )
    pull_request: Flag = Field(
        default=False, description="Open a pull request, or update the one that is open."
    )
    draft: Flag = Field(default=False, description="Open the pull request as a draft.")
    reviewers: Annotated[tuple[Reviewer, ...], Field(max_length=MOST_REVIEWERS)] = Field(
        default=(), description="Users of the forge who are asked for a review of the pull request."
    )


def _as_publish(value: object) -> object:
    """Return a mapping for `true`, and nothing for `false`."""
    if isinstance(value, bool):
        return {} if value else None
    if value is not None and not isinstance(value, (Mapping, PublishConfig)):
        raise fault(f"must be true, false or a mapping, not {shown(value)}")
    return value


Publish: TypeAlias = Annotated[
    PublishConfig | None, BeforeValidator(_as_publish, json_schema_input_type=bool | PublishConfig)
]


def publish_to_json(publish: PublishConfig | None) -> JsonObject | None:
    """Return how results are published, in the words of `cat-herder.yaml`; None if they are not."""
    return publish.model_dump(mode="json", by_alias=True) if publish else None


def publish_from_json(snapshot: Mapping[str, object]) -> PublishConfig:
    """Return what `publish_to_json` wrote."""
    return PublishConfig.model_validate(snapshot, by_alias=True, by_name=False)
