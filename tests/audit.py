"""Look up known vulnerabilities of the locked packages: `make audit`.

Fails only if it found one. Without the network it says that nothing was audited, so that it can stand in CI.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK_FILE = ROOT / "requirements-dev.lock"
#: Seconds for the whole audit. Most of the time goes to one request per package.
_TIMEOUT = 300


def main() -> int:
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        failure = _run_pip_audit(report)
        if failure is not None:
            sys.stdout.write(f"NOT AUDITED: pip-audit cannot reach its service. {failure}\n")
            return 0
        text, status = summary(json.loads(report.read_text()))
    sys.stdout.write(text + "\n")
    return status


def _run_pip_audit(report: Path) -> str | None:
    """Write the report; return the reason if there is none. pip-audit ends with 1 in both cases."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "-r", str(LOCK_FILE)]
    command += ["--format", "json", "--output", str(report), "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f"It did not finish within {_TIMEOUT} seconds."
    if report.exists() and report.stat().st_size:
        return None
    return (done.stderr.strip().splitlines() or ["It gave no reason."])[-1]


def summary(report: dict[str, Any]) -> tuple[str, int]:
    """What the report says, and the exit code: 1 if a package has a known vulnerability."""
    packages = report["dependencies"]
    audited = [package for package in packages if "skip_reason" not in package]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if not audited:
        return "NOT AUDITED: the service knows none of the packages.", 0
    found = [
        f"{package['name']} {package['version']}: {fault['id']}, fixed in {_versions(fault['fix_versions'])}"
        for package in audited
        for fault in package["vulns"]
    ]
    lines = [
        f"{len(audited)} of {len(packages)} packages audited, {len(found)} known vulnerabilities.",
        *found,
    ]
    if skipped:
        lines.append(f"NOT AUDITED, because the service does not know them: {', '.join(skipped)}")
    return "\n".join(lines), 1 if found else 0


def _versions(versions: list[str]) -> str:
    return ", ".join(versions) or "no version yet"


if __name__ == "__main__":
    sys.exit(main())
