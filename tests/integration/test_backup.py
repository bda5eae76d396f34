"""`backup` and `restore` (O2): while the portal runs, on both databases, in the middle of a waiting task."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from tasks_app.core.errors import BackupError
from tasks_app.models import Publication, PublicationState
from tasks_app.operations import rows
from tasks_app.operations.restore import open_backup
from tests.databases import copy_migrated, copy_migrated_to_postgres
from tests.factories import TaskFactory
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import PLAIN_CONFIG, Installation
from tests.integration.git_repository import GitRepository
from tests.portal import UpPortal, WebServer

pytestmark = pytest.mark.once(on="sqlite")

START = """
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import create_task, start_task
from tasks_app.permissions import Principal
user = User.objects.get(username="admin")
project = add_project("plain", {source!r}, by=user)
text = "# Tea or coffee\\n\\nrehearsal: ask-then-ask\\n"
admin = Principal.unrestricted(user)
start_task(create_task(project, text, by=admin, where="test"), by=admin)
"""
STATE = """
task = Task.objects.get(title="Tea or coffee")  # not that of the sample
result = {
    "phase": task.phase, "failure": task.failure, "head": task.head_commit,
    "lease": [task.lease_owner, str(task.lease_expires)],
    "sessions": sorted({str(run.session_id) for run in Run.objects.all()}),
    "resumed": [run.resumed for run in Run.objects.order_by("number")],
    "answers": [question.answer_text for question in Question.objects.order_by("pk")],
}
"""
ANSWER = """
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.permissions import Principal
question = Question.objects.open().get()
admin = Principal.unrestricted(User.objects.get(username="admin"))
answer_question(question, Reply.to(question, {text!r}), by=admin, via=Channel.WEB)
result = question.headline
"""


FOUND = """
from tasks_app.services.search import tasks_with
from tasks_app.services.search import parse_query
result = [task.title for task in tasks_with(Task.objects.all(), parse_query("nothing like it"))]
"""
NOW = """
SELECT task.phase, task.failure,
    (SELECT count(*) FROM tasks_app_question WHERE task_id = task.id AND state = 'answered')
FROM tasks_app_task AS task WHERE task.title = 'Tea or coffee'
"""


def wait_for(portal: UpPortal, phase: str, *, answers: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while (now := portal.row(NOW)) != (phase, "", answers):
        assert now[0] != "failed", now
        assert time.monotonic() < deadline, (now, portal.said)
        time.sleep(0.2)
    state: dict[str, Any] = portal.rows(STATE)
    assert len([answer for answer in state["answers"] if answer]) == answers
    return state


@pytest.fixture(
    params=[
        pytest.param(("sqlite", "postgres"), id="sqlite-to-postgres"),
        pytest.param(("postgres", "sqlite"), id="postgres-to-sqlite", marks=pytest.mark.long),
    ]
)
def databases(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """The variables of the portal that is backed up, and of the one that it becomes."""
    kinds: tuple[str, str] = request.param
    url = request.getfixturevalue("postgres_url")
    return [{"DATABASE_URL": url} if kind == "postgres" else {} for kind in kinds]


@pytest.mark.bubblewrap
@pytest.mark.postgres
def test_a_waiting_task_resumes_in_another_portal_from_a_backup(
    databases: list[dict[str, str]], tmp_path: Path
) -> None:
    """With the real agent program: the same session, with the answer, in another folder and another kind of
    database. The first question was answered before the backup, the second one after the restore."""
    source = GitRepository.make(tmp_path / "plain", **{"cat-herder.yaml": PLAIN_CONFIG})
    if databases[0]:
        copy_migrated_to_postgres(databases[0]["DATABASE_URL"])
    else:
        copy_migrated(tmp_path / "old")
    old = UpPortal(tmp_path / "old", **databases[0]).start()
    file = tmp_path / "portal.tar.gz"
    try:
        old.rows(START.format(source=str(source.path)))
        wait_for(old, "waiting_for_input", answers=0)
        assert old.rows(ANSWER.format(text="Tea")) == "Tea or coffee?"
        before = wait_for(old, "waiting_for_input", answers=1)
        done = old.manage("backup", str(file))
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
    finally:
        old.stop()
    assert file.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.part"))
    new = UpPortal(tmp_path / "new", **databases[1])
    restored = new.manage("restore", str(file))
    assert restored.returncode == 0, restored.stderr
    after = new.rows(STATE)
    assert {**after, "lease": []} == {**before, "lease": []}
    assert after["lease"] == ["", "None"]
    try:
        new.start()
        assert new.rows(ANSWER.format(text="Yes")) == "With milk?"
        end = wait_for(new, "done", answers=2)
    finally:
        new.stop()
    assert end["sessions"] == before["sessions"] and len(end["sessions"]) == 1
    assert end["resumed"] == [False, True, True]
    assert "No password" not in "".join(new.said)  # the admin came with the rows
    assert not [line for line in new.said if "Password  " in line]


WRITE = """
import itertools, time
from tasks_app.services.tasks import create_task
from tasks_app.models import Project, User
from tasks_app.models.paths import workspace
from tasks_app.permissions import Principal
from tasks_app.sandbox import SandboxMode, detect
ann = Principal.unrestricted(User.objects.get(username="ann"))
project = Project.objects.get(name="plain")
sandbox = detect(SandboxMode.OFF)
for number in itertools.count():
    task = create_task(project, f"# Task {number}", by=ann, where="test")
    place = workspace(task)
    place.create(base=task.base_commit)
    (place.path / "file").write_text(str(number))
    task.head_commit = place.snapshot(label=f"{task.pk}-01-1", sandbox=sandbox, publish=True).commit
    task.save(update_fields=["head_commit"])
    place.repository.tidy()
    sys.stdout.write("x"); sys.stdout.flush()
"""


@pytest.mark.long
def test_what_is_written_during_a_backup_does_not_make_it_inconsistent(
    installation: Installation, tmp_path: Path
) -> None:
    """Whatever moment it caught: as many rows as it says, and every commit that a row names."""
    writer = installation.fork(WRITE)
    try:
        writer.stdout.read(3)
        for number in range(2):
            done = installation.manage("backup", str(tmp_path / f"{number}.tar.gz"))
            assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
            assert writer.poll() is None, "the writer has ended"
    finally:
        writer.kill()
        writer.communicate()
    for number in range(2):
        other = Installation(tmp_path / f"restored-{number}")
        restored = other.manage("restore", str(tmp_path / f"{number}.tar.gz"))
        assert restored.returncode == 0, restored.stderr
        found = other.python(
            "from tasks_app.models import Task; from tasks_app.models import paths\n"
            "recorded = Task.objects.exclude(head_commit='').select_related('project')\n"
            "print(len(recorded), all(paths.repository(t.project).has(t.head_commit) for t in recorded))"
        )
        count, whole = found.split()
        assert int(count) >= 2 and whole == "True"


@pytest.fixture(scope="module")
def backed_up(installation_template: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An installation, its backup beside its data. The first command changes files; the next ones do not."""
    made = installation_template.copy(tmp_path_factory.mktemp("backed-up") / "data")
    done = made.manage("backup", "--quiet", str(made.data_dir.with_name("portal.tar.gz")))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return made


@pytest.fixture
def installation(backed_up: Installation, tmp_path: Path) -> Installation:
    return backed_up.copy(tmp_path / "data")


@pytest.fixture
def backup(backed_up: Installation, tmp_path: Path) -> Path:
    return Path(shutil.copy(backed_up.data_dir.with_name("portal.tar.gz"), tmp_path))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below, with its content; the lock of `up` says nothing."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "up.lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class TestFiles:
    def test_an_existing_file_is_replaced_only_on_request(
        self, installation: Installation, backup: Path
    ) -> None:
        before = backup.read_bytes()
        done = installation.manage("backup", str(backup))
        assert done.returncode == 1 and "already exists" in done.stderr
        assert backup.read_bytes() == before
        assert installation.manage("backup", "--force", str(backup)).returncode == 0
        assert backup.read_bytes() != before

    def test_a_folder_that_is_not_there_is_named(self, installation: Installation, tmp_path: Path) -> None:
        done = installation.manage("backup", str(tmp_path / "no" / "such.tar.gz"))
        assert done.returncode == 1 and "such.tar.gz cannot be written: No such file" in done.stderr
        assert "Traceback" not in done.stderr

    def test_standard_output_can_be_sent_elsewhere(self, installation: Installation, tmp_path: Path) -> None:
        with (tmp_path / "piped").open("wb") as piped:
            command = [sys.executable, "manage.py", "backup", "-"]
            subprocess.run(command, cwd=REPOSITORY, env=installation.env(), stdout=piped, check=True)
        listed = installation.manage("restore", "--list", str(tmp_path / "piped"))
        told = json.loads(listed.stdout)
        assert told["rows"]["tasks_app.project"] == 2 and len(told["repositories"]) == 2

    def test_the_secret_key_can_be_left_out_and_is_then_missed(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        file = tmp_path / "without.tar.gz"
        installation.manage("backup", "--without-secret-key", str(file))
        restored = Installation(tmp_path / "other").manage("restore", str(file))
        assert restored.returncode == 0
        assert "The secret key differs from that of the backup" in restored.stderr


def rewrite(source: Path, target: Path, old: bytes, new: bytes) -> None:
    """The same archive with other words in its members."""
    with tarfile.open(source) as read, tarfile.open(target, "w:gz") as written:
        for member in read:
            content = read.extractfile(member)
            assert content
            data = content.read().replace(old, new)
            member.size = len(data)
            written.addfile(member, io.BytesIO(data))


#: What a worker on a machine with another data directory leaves in the database, as often as one does.
BEAT = """
import time
from tasks_app.models import WorkerBeat
while True:
    WorkerBeat.objects.beat(host="elsewhere", pid=7, slots=4, busy=0, version="")
    sys.stdout.write("x"); sys.stdout.flush()
    time.sleep(1)
"""


class TestRefused:
    """Each says a sentence, and nothing is changed."""

    def refused(self, installation: Installation, *words: str, **variables: str) -> str:
        before = tree(installation.data_dir)
        done = installation.manage("restore", *words, **variables)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
        assert tree(installation.data_dir) == before
        return done.stderr

    def test_data_that_are_there(self, installation: Installation, backup: Path) -> None:
        assert "--replace moves all data aside" in self.refused(installation, str(backup))

    def test_a_file_that_is_cut_off_damaged_or_something_else(
        self, installation: Installation, backup: Path, tmp_path: Path
    ) -> None:
        whole = backup.read_bytes()
        bad = tmp_path / "bad.tar.gz"
        cases = [whole[:n] for n in (0, 10, len(whole) // 2, len(whole) - 1)]
        cases += [b"no backup at all", gzip.compress(b"no tar"), whole[:500] + b"\0\1\2" + whole[503:]]
        for content in cases:
            bad.write_bytes(content)
            with pytest.raises(BackupError, match=re.escape(str(bad))), open_backup(bad):
                raise AssertionError("it was taken")
        said = self.refused(installation, "--replace", str(bad))
        assert str(bad) in said and len(said.strip().splitlines()) == 1, said

    def test_a_backup_whose_members_were_changed(self, backup: Path, tmp_path: Path) -> None:
        """A whole tar again, but not what was written; and one of a version that is not there yet."""
        changed = tmp_path / "changed.tar.gz"
        rewrite(backup, changed, b'"ann"', b'"eve"')
        with pytest.raises(BackupError, match="its content is not what was written"), open_backup(changed):
            raise AssertionError("it was taken")
        rewrite(backup, changed, b"0002_search", b"9999_search")
        with pytest.raises(BackupError, match="made by a newer version"), open_backup(changed):
            raise AssertionError("it was taken")

    def test_a_portal_that_runs(self, installation: Installation, backup: Path) -> None:
        with (installation.data_dir / "up.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "stop it first" in self.refused(installation, "--replace", str(backup))

    def test_a_worker_on_another_machine(self, installation: Installation, backup: Path) -> None:
        worker = installation.fork(BEAT)
        try:
            worker.stdout.read(1)
            done = installation.manage("restore", "--replace", str(backup))
        finally:
            worker.kill()
            worker.communicate()
        assert done.returncode == 1 and "elsewhere:7" in done.stderr and "stop them first" in done.stderr
        assert not list(installation.data_dir.glob("*restor*"))


def test_what_was_there_is_moved_aside(installation: Installation, backup: Path) -> None:
    """And what came after the backup is gone from the portal, but not from the disk."""
    installation.python(
        "from tasks_app.services.tasks import create_task; from tasks_app.models import Project, User\n"
        "from tasks_app.permissions import Principal\n"
        "ann = Principal.unrestricted(User.objects.get(username='ann'))\n"
        "create_task(Project.objects.get(name='plain'), '# Later', by=ann, where='test')"
    )
    done = installation.manage("restore", "--replace", str(backup))
    assert done.returncode == 0, done.stderr
    (aside,) = installation.data_dir.glob("before-restore-*")
    assert str(aside) in done.stdout
    assert installation.row("SELECT count(*) FROM tasks_app_task") == (0,)
    with closing(sqlite3.connect(aside / "catherder.sqlite3")) as database:
        assert database.execute("SELECT title FROM tasks_app_task").fetchall() == [("Later",)]
    assert len(list((aside / "repositories").glob("*.git"))) == 2
    assert not list(installation.data_dir.glob("restoring-*"))


NEW_TASK = """
from tasks_app.services.tasks import create_task
from tasks_app.permissions import Principal
ann = User.objects.get(username="ann")
task = create_task(Project.objects.get(name="plain"), "# A", by=Principal.unrestricted(ann), where="test")
"""
#: What was not sent yet, a session of a browser, a lease, a worker, and a task that is gone.
IN_USE = f"""
{NEW_TASK}
from django.utils import timezone
told = Transition.objects.create(task=task, source="running", target="failed")
Delivery.objects.create(transition=told, user=ann, event_type="failed", medium="email", due_at=timezone.now())
Publication.objects.create(task=task, commit="c", url="u", branch="b")
from importlib import import_module
from django.conf import settings
session = import_module(settings.SESSION_ENGINE).SessionStore()
session["a"] = "b"
session.create()
Task.objects.update(lease_owner="a:1", lease_epoch=3, lease_expires=timezone.now())
WorkerBeat.objects.beat(host="here", pid=1, slots=1, busy=0, version="", ended=True)
{NEW_TASK}
task.delete()
"""
LARGE = b"large" * 3_000_000  # in two parts


@dataclass(frozen=True)
class Restored:
    """An installation, its backup without the secret key, and what the backup became in another folder."""

    before: Installation
    file: Path
    after: Installation
    said: str

    @property
    def repositories(self) -> tuple[Path, Path]:
        """That of the project `shallow`, before and after."""
        (key,) = self.before.row("SELECT id FROM tasks_app_project WHERE name = 'shallow'")
        (before,) = (self.before.data_dir / "repositories").glob(f"{key}*.git")
        return before, self.after.data_dir / "repositories" / before.name


@pytest.fixture(scope="module")
def restored(installation_template: Installation, tmp_path_factory: pytest.TempPathFactory) -> Restored:
    folder = tmp_path_factory.mktemp("restored")
    before = installation_template.copy(folder / "before")
    before.rows(IN_USE)
    add_shallow_project(before, folder)
    file = folder / "portal.tar.gz"
    made = before.manage("backup", "--without-secret-key", str(file))
    assert made.returncode == 0, made.stderr
    after = Installation(folder / "after")
    key = (before.data_dir / "secret_key").read_text()
    done = after.manage("restore", str(file), CATHERDER_SECRET_KEY=key)
    assert done.returncode == 0, done.stderr
    return Restored(before, file, after, done.stderr)


class TestRestored:
    """One backup and one restore, which takes seconds, with much in them."""

    def test_a_repository_that_lacks_history_and_files_of_git_lfs_come_back(self, restored: Restored) -> None:
        """Neither is reached by a ref: what the source never had, and what lies beside git's objects."""
        before, after = restored.repositories
        assert lfs_file(after).read_bytes() == LARGE
        assert (after / "shallow").read_text() == (before / "shallow").read_text()
        check = ["git", "-C", str(after), "fsck", "--strict"]
        assert subprocess.run(check, check=False, capture_output=True).returncode == 0

    def test_numbers_that_were_given_do_not_come_again(self, restored: Restored) -> None:
        """A task's number names folders and stands in the audit; that of a gone task stays its own."""
        assert restored.before.row("SELECT max(id) FROM tasks_app_task") == (1,)
        assert restored.after.rows(f"{NEW_TASK}\nresult = task.pk\ntask.delete()") == 3

    def test_what_was_to_be_sent_is_not_sent_again_and_sessions_are_over(self, restored: Restored) -> None:
        portal = restored.after
        assert portal.row("SELECT state FROM tasks_app_delivery") == ("dropped",)
        assert portal.row("SELECT state FROM tasks_app_publication") == ("refused",)
        assert portal.row("SELECT count(*) FROM tasks_app_transition WHERE announced_at IS NULL") == (0,)
        assert portal.row("SELECT count(*) FROM tasks_app_browsersession") == (0,)
        assert portal.row("SELECT count(*) FROM tasks_app_workerbeat") == (0,)
        leases = "SELECT lease_owner, lease_epoch, lease_expires FROM tasks_app_task WHERE id = 1"
        assert portal.row(leases) == ("", 3, None)

    def test_a_secret_key_that_is_set_is_not_missed(self, restored: Restored) -> None:
        key = (restored.before.data_dir / "secret_key").read_bytes()
        assert key not in gzip.decompress(restored.file.read_bytes())
        assert "secret key" not in restored.said


def add_shallow_project(installation: Installation, folder: Path) -> None:
    """A project whose repository lacks history and has a file of Git LFS."""
    source = GitRepository.make(folder / "deep", **{"cat-herder.yaml": PLAIN_CONFIG})
    source.commit(more="x")
    shallow = folder / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{source.path}", str(shallow)], check=True)
    added = installation.manage("project", "add", "shallow", str(shallow))
    assert added.returncode == 0, added.stderr
    (key,) = installation.row("SELECT id FROM tasks_app_project WHERE name = 'shallow'")
    (repository,) = (installation.data_dir / "repositories").glob(f"{key}*.git")
    kept = lfs_file(repository)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(LARGE)


def lfs_file(repository: Path) -> Path:
    name = hashlib.sha256(LARGE).hexdigest()
    return repository / "lfs" / "objects" / name[:2] / name[2:4] / name


@pytest.mark.postgres
def test_on_postgresql_the_old_tables_go_into_a_schema_of_their_own(
    postgres_url: str, tmp_path: Path
) -> None:
    """In one transaction. Tables of others in the same database stay where they are."""
    first = WebServer(tmp_path / "data", DATABASE_URL=postgres_url)
    first.rows(
        "User.objects.create(username='ann'); Project.objects.create(name='p', source='/p', branch='b')"
    )
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute("CREATE TABLE somebody_elses (id int)")
    installation = Installation(tmp_path / "data")
    file = tmp_path / "portal.tar.gz"
    backup = installation.manage("backup", str(file), DATABASE_URL=postgres_url)
    assert backup.returncode == 0, backup.stderr
    assert "Project p has no repository" in backup.stderr
    first.rows("User.objects.create(username='later')")
    done = installation.manage("restore", "--replace", str(file), DATABASE_URL=postgres_url)
    assert done.returncode == 0, done.stderr
    assert first.rows("result = list(User.objects.values_list('username', flat=True))") == ["ann"]
    assert first.rows("result = [User.objects.create(username='new').pk]") == [2]
    with psycopg.connect(postgres_url) as database:
        schemas = database.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ 'restor'").fetchall()
        ((aside,),) = schemas
        assert aside.startswith("before_restore_")
        users = database.execute(f"TABLE {aside}.tasks_app_user").fetchall()
        assert len(users) == 2
        database.execute("SELECT * FROM public.somebody_elses")
    # Words are found: the functions and generated columns came along.
    assert first.rows(FOUND) == []
    again = installation.manage("restore", "--replace", str(file), DATABASE_URL=postgres_url)
    assert again.returncode == 0, again.stderr


@pytest.mark.django_db
def test_a_failed_publication_is_not_told_twice(tmp_path: Path) -> None:
    """The portal that kept running has told it; one that the restore itself ends is told here."""
    task, now = TaskFactory.create(), timezone.now()
    failed = Publication.objects.create(task=task, state=PublicationState.REFUSED, ended_at=now)
    pending = Publication.objects.create(task=task)
    where = {"data_dir": str(tmp_path)}
    rows.adapt_rows(connection, where, new_data_dir=tmp_path)
    failed.refresh_from_db()
    pending.refresh_from_db()
    assert failed.announced_at and pending.announced_at is None
    assert pending.state == PublicationState.REFUSED
