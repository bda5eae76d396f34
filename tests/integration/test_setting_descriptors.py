"""A project setting has one descriptor: model, form, page, API and command have each of them and no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from django.core.management import load_command_class
from django.urls import reverse
from django.utils.html import escape

from tasks_app.api.app import document
from tasks_app.config import setting as kinds
from tasks_app.config.fields import FileModel
from tasks_app.config.pipeline import ProjectConfig, load_project_config
from tasks_app.config.project_settings import SETTINGS, Overrides, effective, file_key, value_in_file
from tasks_app.config.repository_settings import Limits, RepositorySettings
from tasks_app.config.setting import Kind, Setting
from tasks_app.config.yaml_text import file_keys
from tasks_app.models import Project, Role
from tasks_app.services.projects.settings import overrides_of
from tasks_app.web.projects.settings import ProjectSettingsForm
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.integration.conftest import Manage
from tests.runner import Runner

FILE = "pipelines: {careful: [{name: do, command: self}], quick: [{name: dash, command: self}]}\n"
#: By kind: the value that is stored, and the text that gives it.
EXAMPLES: Mapping[int, tuple[object, str]] = {
    id(kinds.FLAG): (False, "no"),
    id(kinds.THRESHOLD): (4, "4"),
    id(kinds.PIPELINE): ("quick", "quick"),
    id(kinds.MODEL): ("opus", "opus"),
    id(kinds.NETWORK): ("model", "model"),
    id(kinds.COUNT): (7, "7"),
    id(kinds.DOLLARS): (2.5, "2.5"),
    id(kinds.DOLLARS_OR_NONE): (1.5, "1.5"),
    id(kinds.BUDGET): (0, "0"),
    id(kinds.DURATION): (900, "15m"),
    id(kinds.LABELS): ("gpu, linux", "gpu,linux"),
    id(kinds.ASK_RULES): ("- step: plan\n  people: ann", "- step: plan\r\n  people: ann\r\n"),
    id(kinds.LADDER): ("remind after 1h\neverybody after 2h", "remind after 1h\r\n everybody after 2h "),
    id(kinds.CALENDAR): ("https://calendar.example/team.ics", "https://calendar.example/team.ics"),
    id(kinds.CALL_PATTERNS): ("Bash(git push*)\nWebFetch", "Bash(git push*)\r\nWebFetch\r\n"),
}
VALUES = {name: EXAMPLES[id(one.kind)][0] for name, one in SETTINGS.items()}
TEXTS = {name: EXAMPLES[id(one.kind)][1] for name, one in SETTINGS.items()}
UNSET = {name: one.kind.unset for name, one in SETTINGS.items()}

each_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda one: one.name)


@pytest.fixture
def project(runner: Runner) -> Project:
    return runner.project(FILE)


def stored(project: Project) -> dict[str, Any]:
    project.refresh_from_db()
    overrides = overrides_of(project)
    return {name: getattr(overrides, name) for name in SETTINGS}


def config() -> ProjectConfig:
    return load_project_config(FILE)


def test_every_setting_has_an_example_of_its_kind() -> None:
    own = {id(one) for one in vars(kinds).values() if isinstance(one, Kind)}
    assert own == set(EXAMPLES)


@each_setting
def test_a_descriptor_says_what_the_setting_is(setting: Setting) -> None:
    assert setting.label and setting.help.endswith(".") and setting.text_help.startswith(setting.help)


@each_setting
def test_a_new_project_leaves_the_setting_to_the_file(setting: Setting) -> None:
    assert getattr(overrides_of(Project()), setting.name) == setting.kind.unset


@pytest.mark.parametrize(
    "setting", [one for one in SETTINGS.values() if file_key(one)], ids=lambda one: one.name
)
def test_a_key_of_the_file_is_overridden(setting: Setting) -> None:
    value = EXAMPLES[id(setting.kind)][0]
    changed = effective(config(), Overrides(**{setting.name: value}))
    holds = getattr(changed, setting.overrides) if setting.overrides else value_in_file(setting, changed)
    assert holds == setting.kind.to_config(value)
    assert effective(config(), Overrides()) == config()


def test_a_setting_of_the_portal_alone_leaves_the_configuration_as_the_file_has_it() -> None:
    alone = {one.name: VALUES[one.name] for one in SETTINGS.values() if not file_key(one)}
    portals = [
        "default_threshold",
        "monthly_budget_usd",
        "max_running_tasks",
        "apply_decisions",
        "ladder_may_end",
        "programs_decide",
    ]
    assert list(alone) == portals
    assert effective(config(), Overrides(**alone)) == config()
    assert value_in_file(SETTINGS["monthly_budget_usd"], config()) is None


def test_every_key_of_the_file_is_a_setting_or_is_known_not_to_be() -> None:
    models: list[type[FileModel]] = [RepositorySettings, Limits]
    keys = [key for model in models for key in file_keys(model)]
    settings = [file_key(one)[-1] for one in SETTINGS.values() if file_key(one)]
    assert sorted(keys) == sorted(
        [*settings, "taskFolder", "limits", "setup", "submodules", "lfs", "toolchains", "readable"]
    )


def test_the_form_has_every_setting_and_no_other() -> None:
    form = ProjectSettingsForm(config=config())
    assert [(name, field.label, field.help_text) for name, field in form.fields.items()] == [
        (name, one.label, one.text_help) for name, one in SETTINGS.items()
    ]


def test_the_form_reads_what_it_shows() -> None:
    shown = ProjectSettingsForm(initial=VALUES, config=config())
    sent = {name: shown[name].field.prepare_value(shown[name].value()) for name in SETTINGS}
    form = ProjectSettingsForm(sent, config=config())
    assert form.is_valid(), form.errors
    assert form.overrides() == Overrides(**VALUES)


@pytest.mark.django_db(transaction=True)
def test_the_page_shows_and_saves_every_setting(project: Project) -> None:
    client = signed_in(MembershipFactory.create(project=project, role=Role.MAINTAINER).user)
    url = reverse("project_settings", args=[project.pk])
    page = client.get(url).text
    for name, setting in SETTINGS.items():
        assert f'name="{name}"' in page and f'id="{name}-hint">{escape(setting.text_help)}</p>' in page
        assert f">{escape(setting.label)}</label>" in page
    assert client.post(url, TEXTS).status_code == 302
    assert stored(project) == VALUES
    page = client.get(url).text
    for name, setting in SETTINGS.items():
        assert f'name="reset" value="{name}"' in page and f"{escape(setting.label)}: <span" in page
        assert client.post(url, {"reset": name}).status_code == 302
    assert stored(project) == UNSET


@pytest.mark.django_db(transaction=True)
def test_the_admin_page_shows_what_people_set(project: Project) -> None:
    project.overrides = {"model": "opus"}
    project.save()
    client = signed_in(UserFactory.create(is_superuser=True, is_staff=True))
    page = client.get(reverse("admin:tasks_app_project_change", args=[project.pk])).text
    assert escape('{"model": "opus"}') in page and 'name="overrides"' not in page


@pytest.mark.django_db(transaction=True)
def test_the_api_returns_and_changes_every_setting(project: Project) -> None:
    script = Script(MembershipFactory.create(project=project, role=Role.MAINTAINER).user)
    url = f"/projects/{project.name}/settings"
    assert script.get(url).json() == UNSET
    for name, value in VALUES.items():
        answer = script.send("patch", url, {name: value})
        assert answer.status_code == 200 and answer.json()[name] == value, answer.content
    assert stored(project) == script.get(url).json() == VALUES
    assert script.send("patch", url, UNSET).json() == UNSET


@pytest.mark.parametrize("schema", ["Overrides", "SettingsPatch"])
def test_the_api_s_document_describes_every_setting_and_no_other(schema: str) -> None:
    properties = document()["components"]["schemas"][schema]["properties"]
    assert {name: one["description"] for name, one in properties.items()} == {
        name: one.json_help for name, one in SETTINGS.items()
    }


def test_the_api_s_document_requires_every_setting_of_the_response_alone() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["Overrides"]["required"] == list(SETTINGS)
    assert "required" not in schemas["SettingsPatch"]


@pytest.mark.django_db(transaction=True)
def test_the_command_shows_and_changes_every_setting(manage: Manage, project: Project) -> None:
    user = MembershipFactory.create(project=project, role=Role.MAINTAINER).user
    command = ["project", "settings", project.name, "--as", user.username]
    given = [f"{one.option}={TEXTS[name]}" for name, one in SETTINGS.items()]
    code, out, err = manage(*command, *given, "--json")
    assert (code, err, json.loads(out)) == (0, "", VALUES)
    assert stored(project) == VALUES
    _, out, _ = manage(*command)
    assert [one.label for one in SETTINGS.values() if one.label not in out] == []
    reset = [word for one in SETTINGS.values() for word in ("--reset", one.option.removeprefix("--"))]
    assert json.loads(manage(*command, *reset, "--json")[1]) == UNSET


def test_the_command_has_an_option_for_every_setting_and_no_other() -> None:
    parser = load_command_class("tasks_app", "project").create_parser("manage.py", "project")
    (actions,) = [one.choices for one in parser._actions if one.dest == "action"]
    assert isinstance(actions, dict)
    options = {one.option_strings[0]: one.help for one in actions["settings"]._actions if one.option_strings}
    others = {"-h", "--branch", "--reset", "--json", "--as"}
    assert set(options) - others == {one.option for one in SETTINGS.values()}
    assert all(one.text_help in str(options[one.option]) for one in SETTINGS.values())


@pytest.mark.django_db(transaction=True)
def test_the_command_names_the_option_that_is_not_usable(manage: Manage, project: Project) -> None:
    user = MembershipFactory.create(project=project, role=Role.MAINTAINER).user
    code, _, err = manage("project", "settings", project.name, "--as", user.username, "--max-turns", "0")
    assert (code, err.strip()) == (2, "error: --max-turns: must be at least 1, not 0")
    assert stored(project) == UNSET


@pytest.mark.django_db(transaction=True)
def test_only_maintainers_change_settings_by_the_command(manage: Manage, project: Project) -> None:
    user = MembershipFactory.create(project=project, role=Role.MEMBER).user
    code, _, _ = manage("project", "settings", project.name, "--as", user.username, "--max-turns", "5")
    assert code == 2 and stored(project) == UNSET
    assert manage("project", "settings", project.name, "--as", user.username)[0] == 0
