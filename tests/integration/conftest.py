"""What tests of commands and of whole processes share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tasks_app.models import User
from tests.integration.installation import Installation
from tests.works import Works

Manage = Callable[..., tuple[int, str, str]]


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Manage:
    """Runs a command in this process: exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code: Any = 0
        try:
            call_command(*map(str, words))
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture(scope="session")
def installation_template(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Made once and copied: migrating and making repositories takes seconds."""
    data_dir = tmp_path_factory.mktemp("template") / "data"
    data_dir.mkdir()
    return Installation.make(data_dir)


@pytest.fixture
def installation(installation_template: Installation, tmp_path: Path) -> Installation:
    return installation_template.copy(tmp_path / "data")


@pytest.fixture
def works(transactional_db: None, settings: Any, tmp_path: Path) -> Works:
    """A portal in this process, with folders of its own: row numbers come again from test to test."""
    settings.DATA_DIR = tmp_path / "data"
    user = User.objects.create_user("ann", is_superuser=True)
    return Works(tmp_path, user)
