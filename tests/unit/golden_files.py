"""Comparison with files in `golden/`.

`CATHERDER_TEST_WRITE_GOLDEN=1` writes them anew, for review in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    path = FOLDER / f"{name}.md"
    if os.environ.get("CATHERDER_TEST_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"{path} differs; CATHERDER_TEST_WRITE_GOLDEN=1 writes it anew"
    )
