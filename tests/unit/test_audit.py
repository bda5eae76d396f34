"""The dependency audit fails for vulnerabilities only, and hides nothing that it skipped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import audit

GOOD = {"name": "anyio", "version": "4.16.0", "vulns": []}
BAD = {"name": "bad", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "status", "lines"),
    [
        ([GOOD], 0, ["1 of 1 packages audited, 0 known vulnerabilities."]),
        (
            [GOOD, BAD],
            1,
            ["2 of 2 packages audited, 1 known vulnerabilities.", "bad 1.0: PYSEC-1, fixed in 1.1"],
        ),
        ([UNKNOWN], 0, ["NOT AUDITED: the service knows none of the packages."]),
        (
            [GOOD, UNKNOWN],
            0,
            [
                "1 of 2 packages audited, 0 known vulnerabilities.",
                "NOT AUDITED, because the service does not know them: unknown",
            ],
        ),
    ],
)
def test_only_a_known_vulnerability_fails(packages: list[Any], status: int, lines: list[str]) -> None:
    assert audit.summary({"dependencies": packages}) == ("\n".join(lines), status)


def test_without_a_report_nothing_fails_and_the_reason_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert not Path(command[command.index("--output") + 1]).exists()
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="ERROR: Could not connect\n")

    monkeypatch.setattr(subprocess, "run", unreachable)
    assert audit.main() == 0
    assert capsys.readouterr().out == (
        "NOT AUDITED: pip-audit cannot reach its service. ERROR: Could not connect\n"
    )
