"""What `deploy/` has: the compose file with its variables filled in, and the units of systemd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
#: What people fill in.
FILLED_IN = {"POSTGRES_PASSWORD": "p0stgres", "REDIS_PASSWORD": "r3dis"}


def variables_of(example: str) -> dict[str, str]:
    """The variables of an example of an environment file."""
    lines = (DEPLOY / example).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def compose() -> dict[str, Any]:
    """The compose file, filled in by its example and by passwords."""
    values = variables_of("compose.env.example") | FILLED_IN
    found: dict[str, Any] = yaml.safe_load(filled_in((DEPLOY / "compose.yaml").read_text(), values))
    return found


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Replace `${NAME}` and `${NAME:?why}` as compose does. A KeyError names what has no value."""
    return re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda found: values[found[1]], text)


def environment_of(service: str) -> dict[str, str]:
    """What a service of the portal gets: the environment file, and over it what compose sets."""
    described = compose()["services"][service]
    given: dict[str, str] = variables_of("compose.env.example") | described["environment"]
    return given


def unit_lines(unit: Path) -> list[tuple[str, str]]:
    """The keys of a unit with their values."""
    lines = (line for line in unit.read_text().splitlines() if line[:1] not in ("", "#", "["))
    return [(line.split("=", 1)[0], line.split("=", 1)[1]) for line in lines]
