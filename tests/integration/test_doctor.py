"""`doctor` (O1): what an installation needs, one line each, and what to do."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.management.commands import doctor
from tasks_app.models import paths
from tasks_app.operations import local_sandbox
from tasks_app.operations.doctor import Finding, Level, data, machine, services
from tasks_app.sandbox import Limits, Sandbox
from tests.factories import ProjectFactory, TaskFactory, WorkerBeatFactory
from tests.forkserver import REPOSITORY
from tests.installation import Installation
from tests.runner import Runner


def told(findings: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(finding.level.value, finding.text) for finding in findings]


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.bubblewrap
class TestCommand:
    def test_a_sound_installation_has_no_problems(self, installation: Installation) -> None:
        done = installation.manage("doctor", "--json", "--deep", "--sources")
        found = json.loads(done.stdout)
        assert [one for one in found if one["level"] == "problem"] == []
        assert done.returncode == 0
        warned = {one["subject"] for one in found if one["level"] == "warning"}
        # It was never started, and there is no key.
        assert {"worker", "web server", "model", "installation"} <= warned
        subjects = {one["subject"] for one in found}
        assert {"git", "sandbox", "agent program", "database", "repositories", "sources"} <= subjects

    def test_without_a_database_all_else_is_still_looked_at(self, installation: Installation) -> None:
        database = installation.data_dir / "catherder.sqlite3"
        for leftover in installation.data_dir.glob("catherder.sqlite3*"):
            leftover.unlink()
        database.write_bytes(b"no database" * 1000)
        done = installation.manage("doctor")
        assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
        assert "✗ database" in done.stdout and "the database is damaged" in done.stdout
        assert "✓ agent program" in done.stdout


def test_a_check_that_fails_itself_is_a_finding_and_keeps_no_other_from_being_made() -> None:
    def broken() -> Iterator[Finding]:
        raise RuntimeError("the moon")

    found = list(doctor.run_checks([broken, machine.python]))
    assert told(iter(found[:1])) == [("problem", "could not be checked: the moon")]
    assert found[1].level is Level.OK


def test_a_machine_without_git_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    finding = only(machine.git())
    assert finding.level is Level.PROBLEM and "apt install git" in finding.advice


@pytest.mark.parametrize(
    ("version", "level", "advice"),
    [
        ("git version 2.31.9", Level.PROBLEM, "git 2.32 or newer"),
        ("git version 2.37.1 (Apple Git-137.1)", Level.WARNING, "git 2.38 or newer"),
        ("git version 2.38.0", Level.OK, ""),
        ("git version unknown", Level.OK, ""),
    ],
)
def test_a_git_that_is_too_old_for_something_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, level: Level, advice: str
) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = only(machine.git())
    assert finding.level is level and advice in finding.advice


def test_make_up_without_git_says_so_at_once(tmp_path: Path) -> None:
    """And installs nothing before."""
    make = shutil.which("make")
    assert make
    done = subprocess.run(
        [make, "up", f"VENV={tmp_path / 'venv'}"],
        cwd=REPOSITORY, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(
        "Cat Herder needs git and finds none. On Debian and Ubuntu: apt install git\n"
    )
    assert not (tmp_path / "venv").exists()


def use_sandbox(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    monkeypatch.setattr(local_sandbox, "sandbox", lambda: sandbox)
    monkeypatch.setattr(local_sandbox, "enforced_limits", lambda: sandbox.enforced_limits)


SANDBOX = Sandbox(Path("/usr/bin/bwrap"), network_reason="", limits_tmp=True)
LIMITS = Limits(memory=2**30, processes=500, disk=2**30, tmp=2**30, free_disk=2**30)


def test_each_limit_for_agents_is_shown_with_what_holds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_sandbox(monkeypatch, SANDBOX.with_limits(LIMITS, cgroup=tmp_path))
    finding = only(machine.limits())
    assert finding.level is Level.OK and finding.advice == ""
    assert "Memory 1 GiB (cgroup); Processes 500 (cgroup); Files 1 GiB (rlimit" in finding.text
    use_sandbox(monkeypatch, SANDBOX.with_limits(LIMITS, cgroup=None))
    assert "Delegate=yes" in only(machine.limits()).advice


def test_a_limit_that_nothing_holds_is_a_warning_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not so one that nobody wants."""
    older = replace(SANDBOX, limits_tmp=False)
    use_sandbox(monkeypatch, older.with_limits(LIMITS, cgroup=None))
    _, unheld = machine.limits()
    assert unheld.level is Level.WARNING and "1 GiB of temporary files" in unheld.text
    assert "bubblewrap 0.7" in unheld.advice
    use_sandbox(monkeypatch, older.with_limits(Limits(), cgroup=None))
    assert "Temporary files no limit" in only(machine.limits()).text


def test_a_network_that_cannot_be_blocked_is_reported(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    use_sandbox(monkeypatch, SANDBOX)
    assert only(machine.network()).level is Level.OK
    use_sandbox(monkeypatch, replace(SANDBOX, network_reason="no loopback"))
    finding = only(machine.network())
    assert finding.level is Level.WARNING and "no loopback" in finding.text
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"network": "none"})
    finding = only(machine.network())
    assert finding.level is Level.PROBLEM and "CATHERDER_NETWORK=none" in finding.advice


def test_a_low_limit_of_open_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    finding = only(machine.open_files())
    assert finding.level is Level.WARNING and "LimitNOFILE" in finding.advice


@pytest.mark.django_db
@pytest.mark.both
class TestServices:
    def test_the_database_is_sound_and_its_clock_is_ours(self) -> None:
        assert {finding.level for finding in services.database()} == {Level.OK}

    def test_a_wrong_clock_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        late = timezone.now() + timedelta(minutes=5)
        monkeypatch.setattr(timezone, "now", lambda: late)
        finding = services._database_clock()
        assert finding.level is Level.WARNING and "this machine and the database differ by 30" in finding.text

    def test_without_a_worker_tasks_wait(self) -> None:
        assert only(services.workers()).level is Level.WARNING
        WorkerBeatFactory.create(busy=1)
        assert told(services.workers()) == [("ok", "1 alive, 1 of 4 agents at work")]

    def test_a_redis_that_is_away_is_a_problem_without_its_password(self, settings: Any) -> None:
        changed = {"redis_url": "redis://:secret@127.0.0.1:1/0"}
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=changed)
        finding = only(services.redis())
        assert finding.level is Level.PROBLEM and "secret" not in finding.text

    def test_a_mail_server_that_is_away_is_a_problem(self, settings: Any) -> None:
        settings.SENDS_EMAIL = True
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
        assert only(services.mail()).level is Level.PROBLEM

    def test_a_subscription_that_is_shared_is_a_matter_of_its_terms(self, settings: Any) -> None:
        changed = {"claude_oauth_token": "a-token"}
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=changed)
        finding = only(services.model())
        assert finding.level is Level.WARNING and "terms" in finding.advice

    def test_a_missing_source_is_reported(self) -> None:
        ProjectFactory.create(name="shop", source="/nowhere/at/all")
        ProjectFactory.create(name="far", source="https://git.example.org/far.git")
        gone, count = services.sources()
        assert gone.level is Level.WARNING and "shop: /nowhere/at/all does not exist" in gone.text
        assert count.text == "1 looked at, 1 behind a network: --sources"


@pytest.mark.django_db
class TestRepositories:
    def test_a_repository_that_is_missing_or_lacks_a_commit_is_a_problem(self, runner: Runner) -> None:
        project = runner.project()
        assert told(data.repositories(deep=True)) == [("ok", "1 looked at, every object read")]
        TaskFactory.create(project=project, base_commit="1" * 40)
        assert "1 commit of unfinished tasks" in only(data.repositories()).text
        shutil.rmtree(paths.repository(project).path)
        project.tasks.all().delete()
        gone = only(data.repositories())
        assert gone.level is Level.PROBLEM and "project fetch" in gone.advice
        assert doctor.apply_fix(gone).level is Level.OK
        assert only(data.repositories()).level is Level.OK

    def test_a_damaged_object_is_found_by_a_deep_look(self, runner: Runner) -> None:
        project = runner.project()
        repository = paths.repository(project)
        objects = [path for path in repository.path.glob("objects/**/*") if path.is_file()]
        largest = max(objects, key=lambda path: path.stat().st_size)
        largest.chmod(0o644)
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 0xFF
        largest.write_bytes(content)
        assert any(finding.level is Level.PROBLEM for finding in data.repositories(deep=True))
