"""Templates are readable. `make lint` checks their format, with djade."""

from __future__ import annotations

from pathlib import Path

TEMPLATES = Path(__file__).parents[2] / "templates"
LONGEST = 140


def test_no_line_of_a_template_is_too_long() -> None:
    files = [path for path in TEMPLATES.rglob("*") if path.suffix in (".html", ".txt", ".js")]
    assert len(files) > 150
    assert not [
        f"{path.relative_to(TEMPLATES)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > LONGEST
    ]
