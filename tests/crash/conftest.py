"""Installations for the crash tests are those of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks_app.rehearsal.server import RehearsalServer
from tests.agents import rehearsal
from tests.crash.stage import Stage
from tests.installation import Installation
from tests.integration.conftest import installation, installation_template, runner

__all__ = ["installation", "installation_template", "runner"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RehearsalServer]:
    with rehearsal(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def stage(
    installation_template: Installation, server: RehearsalServer, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """With the real agent program, sandboxed."""
    return Stage(
        installation_template,
        tmp_path_factory.mktemp("stage"),
        ANTHROPIC_API_KEY="a-key",
        ANTHROPIC_BASE_URL=server.url,
        CATHERDER_SANDBOX="require",
    )
