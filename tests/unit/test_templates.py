"""Templates are readable and lie where one looks for them. `make lint` checks their format, with djade."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "templates"
LONGEST = 140
#: Django's admin and allauth look for these.
OF_LIBRARIES = {"account", "admin", "mfa", "socialaccount"}


def test_no_line_of_a_template_is_too_long() -> None:
    files = [path for path in TEMPLATES.rglob("*") if path.suffix in (".html", ".txt", ".js")]
    assert len(files) > 150
    assert not [
        f"{path.relative_to(TEMPLATES)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > LONGEST
    ]


def test_each_page_lies_in_the_folder_of_the_module_that_renders_it() -> None:
    web = ROOT / "tasks_app" / "web"
    rendered = [
        (path.relative_to(web).parts[0].removesuffix(".py"), folder)
        for path in web.rglob("*.py")
        for folder in re.findall(r'"([a-z]+)/(?:[a-z]+/)*[a-z]\w*\.html"', path.read_text())
    ]
    assert len(rendered) > 30
    assert {
        (noun, folder) for noun, folder in rendered if folder not in OF_LIBRARIES and noun != folder
    } == set()
