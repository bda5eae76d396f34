"""A project's settings: those of its repository, and those set in the portal, which override them (P1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.core.exceptions import ValidationError

from tasks_app import places
from tasks_app.config.pipeline import ProjectConfig, choose_pipeline, load_project_config
from tasks_app.errors import BadInput, NotAllowed
from tasks_app.models import Project, User
from tasks_app.workspace import committed_text

CONFIG_FILE = "cat-herder.yaml"


@dataclass(frozen=True)
class Overrides:
    """What the portal says instead of the repository; None and "" leave it to the repository."""

    threshold: int | None = None
    default_pipeline: str = ""
    model: str = ""
    wait_for_reset: bool | None = None
    auto_commit: bool | None = None


def repository_settings(project: Project, *, commit: str) -> ProjectConfig:
    """What the repository says at a commit. Raises BadInput that names file, line and key."""
    text = committed_text(places.repository(project), commit=commit, path=CONFIG_FILE)
    return load_project_config(text, where=CONFIG_FILE)


def overrides_of(project: Project) -> Overrides:
    return Overrides(**{name: getattr(project, name) for name in Overrides.__dataclass_fields__})


def effective(config: ProjectConfig, overrides: Overrides) -> ProjectConfig:
    """The settings that hold."""
    chosen = {
        "interaction_threshold": overrides.threshold,
        "default_pipeline": overrides.default_pipeline or None,
        "model": overrides.model or None,
        "wait_for_rate_limit_reset": overrides.wait_for_reset,
        "auto_commit": overrides.auto_commit,
    }
    return replace(config, **{name: value for name, value in chosen.items() if value is not None})  # type: ignore[arg-type]


def change_settings(project: Project, overrides: Overrides, *, by: User, commit: str) -> None:
    """Set what the portal says instead of the repository; it holds for tasks created from now on.

    Raises NotAllowed for all but maintainers, BadInput for a value that cannot be used.
    """
    if not Project.objects.maintained_by(by).filter(pk=project.pk).exists():
        raise NotAllowed(
            f"Your role in {project} lets you look but not act. Its maintainers change settings."
        )
    if overrides.default_pipeline:
        choose_pipeline(
            repository_settings(project, commit=commit), explicit=overrides.default_pipeline, task=None
        )
    for name in Overrides.__dataclass_fields__:
        setattr(project, name, getattr(overrides, name))
    try:
        project.full_clean()
    except ValidationError as error:
        raise BadInput("; ".join(error.messages), where="settings") from None
    project.save(update_fields=list(Overrides.__dataclass_fields__))
