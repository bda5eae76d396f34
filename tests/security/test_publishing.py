"""The credential for publishing: nobody but git and ssh ever sees it (V6, R4)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps

from tasks_app.encryption import Purpose, decrypt
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.models import Publication, PublishCredential, Task
from tasks_app.services.publishing.publications import publish
from tasks_app.services.publishing.settings import NewCredential, store_credential
from tests.fake_script import Turn, say, write
from tests.git_servers import TOKEN, USER, HttpsServer, SshServer, bare_repository
from tests.people import acting
from tests.results import make_result
from tests.runner import Runner

#: Notes the arguments and environments of all processes while the remote receives the push.
_LOOK_AROUND = """#!/bin/sh
echo "Your token is {secret}."
for process in /proc/[0-9]*; do
    cat $process/cmdline $process/environ 2>/dev/null | tr '\\0' '\\n'
done > {notes}
"""


def published(runner: Runner, url: str, new: NewCredential) -> Publication:
    result = make_result(runner, url=url)
    store_credential(result.task.project, new, by=result.by)
    publication = result.publish()
    assert publication.state == "pushed", publication.answer
    return publication


def look_around(repository: Path, secret: str) -> Path:
    """Let the repository's hook tell the secret, and note what can be seen of the processes meanwhile."""
    notes, hook = repository / "notes", repository / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_LOOK_AROUND.format(secret=secret, notes=notes))
    hook.chmod(0o755)
    return notes


def all_rows() -> str:
    return "\n".join(
        str(row)
        for model in apps.get_app_config("tasks_app").get_models()
        for row in model._default_manager.values()
    )


def all_files(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for where, _, names in os.walk(folder):
            for path in (Path(where) / name for name in names):
                if path.is_file():
                    yield path, path.read_bytes()


def assert_nowhere(secret: str, runner: Runner, notes: Path, logs: str) -> None:
    seen = notes.read_text(errors="replace")
    assert "push" in seen and secret not in seen
    assert secret not in all_rows()
    assert secret not in logs
    assert [path for path, content in all_files(runner.folder) if secret.encode() in content] == []


def test_the_secret_is_found_nowhere(
    runner: Runner, https: HttpsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in arguments, environments, rows, logs, the audit log or files, and not in what the server says."""
    caplog.set_level(logging.DEBUG)
    repository = bare_repository(https.folder / "token.git")
    notes = look_around(repository, TOKEN)
    new = NewCredential("token", TOKEN, username=USER)
    publication = published(runner, https.url("token.git"), new)
    assert publication.answer == "Your token is …."
    assert_nowhere(TOKEN, runner, notes, caplog.text)
    assert decrypt(PublishCredential.objects.get().encrypted_secret, Purpose.PUBLISHING) == TOKEN


@pytest.mark.sshd
def test_the_key_is_found_nowhere(runner: Runner, ssh: SshServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = ssh.private_key.splitlines()[1]
    notes = look_around(bare_repository(ssh.folder / "key.git"), secret)
    new = NewCredential("ssh_key", ssh.private_key, known_hosts=ssh.known_hosts)
    publication = published(runner, ssh.url("key.git"), new)
    assert publication.answer == "Your token is …."
    assert_nowhere(secret, runner, notes, caplog.text)


def test_configuration_and_hooks_of_the_agent_have_no_effect(runner: Runner, settings: Any) -> None:
    """What the agent writes into the `.git` of its clone is not where the portal pushes from."""
    sign, hook = runner.folder / "sign", runner.folder / "hooks" / "pre-push"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {sign}\n")
    hook.chmod(0o755)
    config = (
        f"[core]\n\tsshCommand = touch {sign}\n\thooksPath = {hook.parent}\n"
        f"[credential]\n\thelper = !touch {sign}\n"
    )
    attack = [Turn("Hm.", (write(".git/config", config), write("a.txt", "a"))), say("Done.")]
    task = runner.advance(runner.task(attack))
    assert Task.objects.get().phase == "done", task.failure
    publication = publish(task, by=acting(runner.user))
    carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == "pushed", publication.answer
    assert not sign.exists()
