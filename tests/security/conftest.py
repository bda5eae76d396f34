"""What tests of threats share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks_app.models import User
from tests.runner import Runner


@pytest.fixture
def runner(transactional_db: None, settings: Any, tmp_path: Path) -> Runner:
    """A portal in this process, with folders of its own."""
    settings.DATA_DIR = tmp_path / "data"
    return Runner(tmp_path, User.objects.create_user("ann", is_superuser=True))
