"""Calendars that users name: nothing inside the network is reached, and no other file is read (Q1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests.adapters
from django.utils import timezone

from tasks_app.core.errors import CatHerderError
from tasks_app.models import Calendar, Project
from tasks_app.services.calendars import due_calendars, fetched, read_due_calendar
from tasks_app.services.projects.projects import add_project
from tests.integration.git_repository import GitRepository
from tests.integration.receivers import certificate, receiving
from tests.runner import ONE_STEP, Runner


def read(project: Project) -> Calendar:
    for one in due_calendars(now := timezone.now()):
        read_due_calendar(one, now)
    return Calendar.objects.get(project=project)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
def test_no_host_inside_the_network_is_reached(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q1: however its address is written."""
    made = certificate(tmp_path, name="localhost")
    monkeypatch.setattr(requests.adapters, "DEFAULT_CA_BUNDLE_PATH", str(made))
    with receiving(tls=made) as receiver:
        with pytest.raises(CatHerderError):
            fetched(f"https://{host}:{receiver.port}/a.ics")
        assert receiver.posts == []


@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "metadata.google.internal", "[fd00::1]"])
def test_neither_metadata_nor_private_networks_are_asked(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q1"""

    def connected(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("tasks_app.forges.http.create_connection", connected)
    with pytest.raises(CatHerderError):
        fetched(f"https://{host}/a.ics")


@pytest.mark.django_db(transaction=True)
def test_a_link_of_the_repository_is_not_followed(runner: Runner, tmp_path: Path) -> None:
    """Q1"""
    secret = tmp_path / "secret.ics"
    secret.write_text("BEGIN:VCALENDAR\nEND:VCALENDAR\n")
    repository = GitRepository.make(tmp_path / "source", **{"a.md": "A"})
    (repository.path / "on-call.ics").symlink_to(secret)
    repository.commit(**{"cat-herder.yaml": f"onCall: on-call.ics\n{ONE_STEP}"})
    found = read(add_project("linked", str(repository.path), by=runner.user))
    assert found.source == "on-call.ics" and "no such file" in found.fault and found.read_at is None
