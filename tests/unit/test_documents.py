"""The documents agree with the code: examples work, tables are complete, links lead somewhere."""

from __future__ import annotations

import hashlib
import hmac
import re
import shlex
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from packaging.requirements import Requirement
from pydantic import BaseModel

from catherder_site.usage import COMMANDS
from tasks_app.api.app import document as openapi
from tasks_app.config.pipeline import ProjectFile, StepConfig, load_project_config
from tasks_app.config.repository_settings import CacheConfig, Limits, PublishConfig, SetupConfig
from tasks_app.config.task_file import FrontMatter, parse_task
from tasks_app.config.yaml_text import file_keys
from tasks_app.core.environment import Environment
from tasks_app.models import Scope
from tasks_app.notifications.webhook import signature
from tasks_app.web.help import GROUPS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_BLOCK = re.compile(r"(?ms)^ *```(\w*)\n(.*?)^ *```$")
_ROW = re.compile(r"(?m)^ *\| (.+?) \|$")
_COMMAND_LINE = re.compile(r"(?:docker .* |\s*\S*/|\s*)cat-herder (.+)")
#: Commands in the shell of an agent.
_OF_AGENTS = {"ask", "reply", "unfit", "not"}
_OURS = {name for name, app in get_commands().items() if app == "tasks_app"}


def blocks(text: str, language: str) -> list[str]:
    return [block for found, block in _BLOCK.findall(text) if found == language]


def prose(text: str) -> str:
    return _BLOCK.sub("", text)


def table(page: str, heading: str) -> dict[str, str]:
    """The first column of the tables with this heading, to the rest of the row."""
    rows: dict[str, str] = {}
    for part in re.split(r"\n(?!\s*\|)", (DOCS / page).read_text()):
        lines = _ROW.findall(part)
        if lines and lines[0].split(" | ")[0] == heading:
            rows |= {line.split(" | ", 1)[0]: line.split(" | ", 1)[1] for line in lines[2:]}
    return rows


def names_in(rows: dict[str, str]) -> list[str]:
    return [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]


def all_blocks(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{name}-{number}")
        for page, name in zip(PAGES, NAMES, strict=True)
        for number, block in enumerate(blocks(page.read_text(), language), start=1)
    ]


# Links and length


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.+)$", _BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = prose(page.read_text())
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:href|src|srcset)="([^"]+)"', text)
    broken = []
    for target in targets:
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_readme_leads_to_every_page(page: Path) -> None:
    assert f"](docs/{page.name})" in (ROOT / "README.md").read_text()


def test_the_readme_lists_the_pages_in_the_groups_of_the_help() -> None:
    text = (ROOT / "README.md").read_text().partition("## Read on")[2]
    groups = re.findall(r"(?m)^\| \*\*(.+?)\*\* \| (.+) \|$", text)
    found = {group: re.findall(r"docs/([a-z-]+)\.md", rest) for group, rest in groups}
    assert {group: tuple(names) for group, names in found.items() if group in GROUPS} == GROUPS
    assert list(found) == [*GROUPS, "Change"]


def test_every_picture_is_shown() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [picture.name for picture in DOCS.glob("*.png") if f"docs/{picture.name}" not in readme] == []


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_architecture_has_two_screens() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 115


# Examples


@pytest.mark.parametrize("text", all_blocks("yaml"))
def test_a_yaml_example_is_a_valid_project_file(text: str) -> None:
    load_project_config(text)


@pytest.mark.parametrize("text", all_blocks("markdown"))
def test_an_example_of_a_task_can_be_read(text: str) -> None:
    task = parse_task(text, where="example")
    assert (task.title, task.threshold, task.pipeline) in {
        ("Round prices the way the cashier does", 3, None),
        ("Greet the guests", None, "questions-first"),  # a pipeline of the sample project
    }


def command_lines(block: str) -> Iterator[list[str]]:
    for line in block.splitlines():
        if found := _COMMAND_LINE.match(line):
            yield shlex.split(re.split(" [<>] ", found[1])[0], comments=True)


@pytest.mark.parametrize("block", all_blocks("sh"))
def test_a_command_line_can_be_parsed(block: str) -> None:
    if "cat-herder unfit" in block:  # in the shell of an agent
        return
    for name, *arguments in command_lines(block):
        load_command_class("tasks_app", name).create_parser("cat-herder", name).parse_args(arguments)


# What the security page shows are calls of agents in repositories of their own.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "security.md"], ids=lambda page: page.name
)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    text = page.read_text()
    spans = re.findall(r"`([^`\n]+)`", prose(text)) + "\n".join(blocks(text, "sh")).splitlines()
    named = {found[1] for span in spans if (found := re.match(r"(?:[A-Z_]+=\S+ )*make ([a-z-]+)", span))}
    assert named <= targets


def test_the_contributing_page_has_every_make_target_and_no_other() -> None:
    targets = re.findall(r"(?m)^([a-z-]+):.*## ", (ROOT / "Makefile").read_text())
    listed = re.findall(r"`make ([a-z-]+)`", " ".join(table("contributing.md", "Target")))
    assert sorted(listed) == sorted(targets)


def test_the_example_of_the_api_calls_operations_that_exist() -> None:
    paths = [re.sub(r"\{\w+\}", "{}", path) for path in openapi()["paths"]]
    (example,) = blocks((DOCS / "api.md").read_text(), "sh")
    called = [re.sub(r"/\d+", "/{}", path) for path in re.findall(r"\$API(/[\w/]+)", example)]
    assert len(called) == 3
    assert all(f"/api/v1{path}" in paths for path in called)


def test_the_example_of_a_webhook_receiver_believes_the_portal_and_nobody_else() -> None:
    (example,) = blocks((DOCS / "notifications.md").read_text(), "python")
    for key, genuine in [("secret", True), ("another", False)]:
        header = signature(key, b"{}", at=int(time.time()))
        request = SimpleNamespace(headers={"X-Cat-Herder-Signature": header}, body=b"{}")
        scope: dict[str, Any] = {"request": request, "secret": "secret"}
        exec(example, scope | {"hmac": hmac, "hashlib": hashlib, "time": time}, scope)  # noqa: S102
        assert scope["genuine"] is genuine


# Tables


def test_the_settings_page_has_every_variable_and_no_other() -> None:
    listed = names_in(table("settings.md", "Variable"))
    assert sorted(listed) == sorted(str(field.alias) for field in Environment.model_fields.values())


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_variable_that_a_page_names_exists(page: Path) -> None:
    known = {str(field.alias) for field in Environment.model_fields.values()}
    named = set(re.findall(r"\bCATHERDER_[A-Z_]+\b(?!…)", page.read_text()))
    assert {name for name in named - known if not name.startswith("CATHERDER_TEST_")} == set()


def test_a_default_in_the_settings_page_is_that_of_the_code() -> None:
    rows = table("settings.md", "Variable")
    for field in Environment.model_fields.values():
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            shown = rows[f"`{field.alias}`"].split(" | ")[0]
            assert shown in {f"`{field.default}`", f"`{field.default // 1024**3}G`"}, field.alias


def test_the_commands_page_has_every_command_and_no_other() -> None:
    assert sorted(cell.strip("`").split()[0] for cell in table("commands.md", "Command")) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(_OURS))
def test_every_option_in_the_commands_page_exists(name: str) -> None:
    rows = table("commands.md", "Command")
    (row,) = [rest for cell, rest in rows.items() if cell.strip("`").split()[0] == name]
    help_text = load_command_class("tasks_app", name).create_parser("cat-herder", name).format_help()
    assert [option for option in re.findall(r"--[a-z-]+", row) if option not in help_text] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`cat-herder ([a-z_]+)", page.read_text()))
    assert named - _OF_AGENTS <= {*COMMANDS}
    of_django = set(re.findall(r"cat-herder django ([a-z_]+)", page.read_text()))
    assert of_django <= set(get_commands()) - _OURS


@pytest.mark.parametrize(
    ("page", "heading", "model"),
    [
        ("pipelines.md", "Key of a step", StepConfig),
        ("pipelines.md", "Key of the file", ProjectFile),
        ("pipelines.md", "Key of `limits`", Limits),
        ("pipelines.md", "Key of `setup`", SetupConfig),
        ("pipelines.md", "Key of `cache`", CacheConfig),
        ("pipelines.md", "Key of `publish`", PublishConfig),
        ("tasks.md", "Key of a task", FrontMatter),
    ],
)
def test_a_table_of_keys_has_every_key_and_no_other(page: str, heading: str, model: type[BaseModel]) -> None:
    assert sorted(names_in(table(page, heading))) == sorted(file_keys(model))  # type: ignore[arg-type]


def test_the_api_page_has_every_scope() -> None:
    assert names_in(table("api.md", "Scope")) == list(Scope.values)


@pytest.mark.parametrize("page", ["glossary.md", "developer-glossary.md"])
def test_the_glossary_is_alphabetical_and_one_sentence_each(page: str) -> None:
    terms = table(page, "Term")
    assert list(terms) == sorted(terms, key=str.lower)
    assert [term for term, rest in terms.items() if not rest.endswith(".") or ". " in rest] == []


def test_the_architecture_names_every_package_and_no_other() -> None:
    listed = names_in(table("../ARCHITECTURE.md", "Package"))
    packages = {path.parent.name for path in (ROOT / "tasks_app").glob("*/__init__.py")}
    assert sorted(listed) == sorted(packages - {"migrations", "templatetags"})


def test_the_architecture_says_why_each_dependency_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    listed = " ".join(table("../ARCHITECTURE.md", "Dependency")).lower().replace(",", "").split()
    assert [name for name in wanted if Requirement(name).name.lower() not in listed] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_file_of_this_repository_that_a_page_names_exists(page: Path) -> None:
    names = re.findall(r"`((?:tests|tasks_app|catherder_site|deploy|\.ci)/[\w./-]*)`", page.read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_a_test_that_the_security_page_names_exists() -> None:
    source = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.name for path in (ROOT / "tests").rglob("*.py")}
    named = re.findall(r"`(?:[\w/]+/)?(test_\w+(?:\.py)?)`", (DOCS / "security.md").read_text())
    assert named
    assert [name for name in named if name not in files and f"def {name}(" not in source] == []


def test_every_file_that_the_map_names_is_there() -> None:
    map_pages = (ROOT / "ARCHITECTURE.md").read_text() + (DOCS / "where-to-look.md").read_text()
    named = set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|js|md))`", map_pages))
    assert len(named) > 200
    assert not {
        name for name in named if not ((ROOT / name).exists() or (ROOT / "tasks_app" / name).exists())
    }


def test_every_row_that_code_and_tests_name_is_in_the_specification() -> None:
    rows = set(re.findall(r"(?m)^\| ([A-Z]\d+) \|", (DOCS / "specification.md").read_text()))
    named = _rows_named_in("tasks_app") | _rows_named_in("tests")
    assert named and named <= rows


def test_a_test_names_every_row_of_the_specification() -> None:
    rows = set(re.findall(r"(?m)^\| ([A-Z]\d+) \|", (DOCS / "specification.md").read_text()))
    assert not rows - _rows_named_in("tests")


def _rows_named_in(folder: str) -> set[str]:
    texts = [path.read_text() for path in (ROOT / folder).rglob("*.py")]
    return {name for text in texts for name in re.findall(r"\b[HPVDWRMOF][1-9]\d?\b", text)}
