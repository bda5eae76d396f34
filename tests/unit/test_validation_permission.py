"""`validate --fix`: the permission to ask is added, and nothing else of the file changes (SPEC H12, R5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.validation import RepositoryContext, grant_permission
from tasks_app.config.validation.permission import NEW_FILE, has_permission, with_permission
from tasks_app.core.errors import BadInput

ASK = '"Bash(cat-herder ask:*)"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", f'{{\n  "permissions": {{\n    "allow": [\n      {ASK}\n    ]\n  }}\n}}'),
        ('{"a": 1}\n', f'{{"a": 1, "permissions": {{"allow": [{ASK}]}}}}\n'),
        (
            '{\n    "a": {"b": []}\n}\n',
            '{\n    "a": {"b": []},\n    "permissions": {\n        "allow": [\n            '
            f"{ASK}\n        ]\n    }}\n}}\n",
        ),
        ('{"permissions": {"allow": ["Read"]}}', f'{{"permissions": {{"allow": ["Read", {ASK}]}}}}'),
        (
            '{\n\t"permissions": {\n\t\t"allow": [\n\t\t\t"Read"\n\t\t],\n\t\t"deny": []\n\t}\n}\n',
            '{\n\t"permissions": {\n\t\t"allow": [\n\t\t\t"Read",\n'
            f'\t\t\t{ASK}\n\t\t],\n\t\t"deny": []\n\t}}\n}}\n',
        ),
        (
            '{\n  "permissions": {\n    "allow": []\n  }\n}\n',
            f'{{\n  "permissions": {{\n    "allow": [\n      {ASK}\n    ]\n  }}\n}}\n',
        ),
        (
            '{\r\n  "permissions": {\r\n    "deny": ["x"]\r\n  }\r\n}\r\n',
            '{\r\n  "permissions": {\r\n    "deny": ["x"],\r\n    "allow": [\r\n'
            f"      {ASK}\r\n    ]\r\n  }}\r\n}}\r\n",
        ),
        (
            '\ufeff{"permissions":{"allow":["Lesen \\u00e4 ☃"]}}',
            f'\ufeff{{"permissions":{{"allow":["Lesen \\u00e4 ☃", {ASK}]}}}}',
        ),
        (
            '{"permissions": {"allow": ["one"]}, "permissions": {"allow": ["two"]}}',
            f'{{"permissions": {{"allow": ["one"]}}, "permissions": {{"allow": ["two", {ASK}]}}}}',
        ),
    ],
)
def test_h12_the_layout_of_the_file_is_kept(before: str, after: str) -> None:
    assert with_permission(before).replace("\r", "") == after.replace("\r", "")
    assert has_permission(with_permission(before))
    if "\r\n" in before:
        assert "\n" not in with_permission(before).replace("\r\n", "")


@pytest.mark.parametrize(
    "rule", ["Bash(cat-herder ask:*)", "Bash(cat-herder:*)", "Bash(cat-herder ask *)", "Bash(*)", "Bash"]
)
def test_h12_a_wider_permission_serves_as_well(rule: str) -> None:
    assert has_permission(json.dumps({"permissions": {"allow": ["Read", rule]}}))


@pytest.mark.parametrize("rule", ["Bash(cat-herder)", "Bash(cat:*)", "Bash(cat-herder ask)", "BashOutput"])
def test_h12_another_permission_does_not(rule: str) -> None:
    assert not has_permission(json.dumps({"permissions": {"allow": [rule]}}))


@pytest.fixture
def context(tmp_path: Path) -> RepositoryContext:
    return RepositoryContext(tmp_path / "repository", prompts=tmp_path)


def settings(context: RepositoryContext) -> Path:
    path = context.root / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    return path


def test_h12_a_missing_file_is_made_and_made_once(context: RepositoryContext) -> None:
    context.root.mkdir()
    assert grant_permission(context)
    path = context.root / ".claude" / "settings.json"
    assert path.read_text() == NEW_FILE
    assert path.stat().st_mode & 0o777 == 0o644
    assert not grant_permission(context)
    assert [one.name for one in path.parent.iterdir()] == ["settings.json"]


def test_h12_the_rights_of_the_file_are_kept(context: RepositoryContext) -> None:
    path = settings(context)
    path.write_text("{}")
    path.chmod(0o600)
    assert grant_permission(context)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{\n  "permissions": {\n', r":3: this is not JSON"),
        ("{} // mine", r":1: this is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"permissions": {"allow": "all"}}', "permissions.allow must be a list of texts"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_r5_what_cannot_be_understood_is_never_overwritten(
    context: RepositoryContext, text: str, fault: str
) -> None:
    path = settings(context)
    path.write_text(text)
    with pytest.raises(ConfigInvalid, match=fault):
        grant_permission(context)
    assert path.read_text() == text


def test_r4_a_link_is_not_followed(context: RepositoryContext, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    settings(context).symlink_to(outside)
    with pytest.raises(BadInput, match="link"):
        grant_permission(context)
    assert outside.read_text() == "{}"


def test_r4_a_folder_that_leads_out_is_not_written(context: RepositoryContext, tmp_path: Path) -> None:
    context.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (context.root / ".claude").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="leads out of the repository"):
        grant_permission(context)
    assert list((tmp_path / "elsewhere").iterdir()) == []
