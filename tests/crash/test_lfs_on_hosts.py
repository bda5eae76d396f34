"""M1, M2: contents of Git LFS travel between a portal and its worker hosts, in both directions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.git import lfs
from tasks_app.git.publishing import Remote
from tasks_app.git.repository import Repository
from tasks_app.management.commands.up import server_options
from tasks_app.rehearsal.server import RehearsalServer
from tests.crash.test_separate_hosts import ANSWER, BEGIN, Installation, wait_until, waits_without_a_lease
from tests.databases import empty_postgres
from tests.git_servers import bare_repository
from tests.hosts import Network
from tests.installation import PLAIN_CONFIG, answering
from tests.integration.redis_server import redis_server
from tests.portal import WebServer

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.bubblewrap,
    pytest.mark.git_lfs,
    pytest.mark.postgres,
    pytest.mark.redis,
    pytest.mark.once(on="sqlite"),
]

FIRST = b"\x89first" * 400_000
FILTERS = {"CATHERDER_GIT_FILTERS": "lfs"}


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pointer(content: bytes) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{name_of(content)}\nsize {len(content)}\n"


@pytest.fixture
def installation(server: RehearsalServer, tmp_path: Path) -> Iterator[Installation]:
    """A portal with Git LFS, whose project has a picture in its source."""
    model = {"ANTHROPIC_API_KEY": "a-key"}
    with empty_postgres() as database, redis_server() as redis:
        services = {"DATABASE_URL": database, "REDIS_URL": redis.url, "ANTHROPIC_BASE_URL": server.url}
        portal = WebServer(tmp_path / "data", **services, **model, **FILTERS).start(*server_options())
        try:
            source = tmp_path / "source"
            begin = BEGIN.replace("SOURCE", repr(str(source))).replace(
                '**{"cat-herder.yaml": CONFIG}',
                repr_of_files({"cat-herder.yaml": f"lfs: true\n{PLAIN_CONFIG}", **files()}),
            )
            portal.python(begin)
            keep(source / ".git", FIRST)
            with Network() as network:
                urls = {**services, "CATHERDER_URL": f"http://{portal.address}"}
                variables = {name: network.offer_url(name, url) for name, url in urls.items()}
                yield Installation(portal, network, tmp_path, {**variables, **model, **FILTERS})
        finally:
            portal.stop()


def files() -> dict[str, str]:
    return {".gitattributes": "*.png filter=lfs diff=lfs merge=lfs -text\n", "art/a.png": pointer(FIRST)}


def repr_of_files(files: dict[str, str]) -> str:
    return f"**{files!r}"


def keep(git_directory: Path, content: bytes) -> None:
    path = lfs.path_of(git_directory, name_of(content))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_m1_a_file_of_lfs_is_read_changed_and_gone_on_with_on_another_host(
    installation: Installation, tmp_path: Path
) -> None:
    portal = installation.portal
    first = installation.worker("first")
    (task,) = installation.new_tasks("lfs-story")
    wait_until(lambda: waits_without_a_lease(installation, task), log=first.log)
    first.destroy()
    (question,) = portal.row("SELECT id FROM tasks_app_question ORDER BY id DESC LIMIT 1")
    assert portal.python(answering(question, ANSWER, by="ann")) == ""
    second = installation.worker("second")
    installation.wait_for_ends([task], second)
    counted = installation.count(task, "seen-after.txt", "art/a.png")
    assert counted["phase"] == "done" and counted["disks"] == 2, counted
    assert counted["files"] == {"seen-after.txt": "second", "art/a.png": pointer(b"third")}
    head, path = portal.rows(
        "from tasks_app.models import paths\n"
        f"task = Task.objects.select_related('project').get(pk={task})\n"
        "result = [task.head_commit, str(paths.repository(task.project).path)]"
    )
    repository = Repository(Path(path), str(tmp_path / "source"))
    assert repository.git.run("cat-file", "blob", f"{head}:seen-before.txt") == FIRST
    remote = bare_repository(tmp_path / "remote.git")
    Remote(str(remote)).push(repository, head, "result", expected="")
    for content in (b"second", b"third"):
        assert lfs.path_of(Path(path), name_of(content)).read_bytes() == content, "it came from its host"
    assert lfs.path_of(remote, name_of(b"third")).read_bytes() == b"third"
    assert not lfs.path_of(remote, name_of(b"second")).exists(), "no commit of the result names it"
