"""M1, M6: a portal behind https whose certificate a private authority has signed.

A worker host calls it with requests and with git. What one of the two trusts, the other trusts too: a host
that says it can work must also get the files.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from tasks_app.core.errors import TemporaryFault
from tasks_app.git import authorities, mirror
from tasks_app.git.program import Git
from tasks_app.operations.doctor import Level, services
from tests.integration.receivers import certificate
from tests.integration.test_lfs_of_worker_hosts import has, keep, pointer
from tests.integration.worker_host import Host, host_at, serving, snapshot_ref
from tests.runner import Runner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


@pytest.fixture(autouse=True)
def no_authority_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "localhost")
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", ())


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The authority that has signed the certificate of the portal."""
    return certificate(tmp_path, name="localhost")


@pytest.fixture
def other_authority(tmp_path: Path) -> Path:
    return certificate(tmp_path, name="another")


@pytest.fixture
def host(runner: Runner, authority: Path) -> Iterator[Host]:
    with serving(certificate=authority) as url:
        yield host_at(url, runner)


def set_default_store(monkeypatch: pytest.MonkeyPatch, *, file: Path | None, folder: Path | None) -> None:
    """Let OpenSSL of this machine have its default store there."""
    known = SimpleNamespace(cafile=file and str(file), capath=folder and str(folder))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: known)


def require_exchange(host: Host) -> None:
    """Call the portal with requests, fetch from it with git, and push to it with git."""
    assert host.portal.hello()["data_dir"]
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("green")
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert host.repository.refs(snapshot_ref(host.task)) == (made,)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_m1_an_authority_that_one_variable_names_is_trusted_by_requests_and_by_git(
    host: Host, authority: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(authority))
    require_exchange(host)


def test_m1_an_authority_in_the_systems_store_is_trusted_by_requests_and_by_git(
    host: Host, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default_store(monkeypatch, file=authority, folder=None)
    require_exchange(host)


@pytest.mark.git_lfs
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_m1_git_lfs_trusts_it_too(
    runner: Runner, authority: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(authority))
    content = b"painted"
    project = runner.project(**{"a.png": pointer(content)})
    keep(Path(project.source, ".git"), content)
    with serving(certificate=authority) as url:
        host = host_at(url, runner, project)
        with host.mirror.held_for(host.key, branch=host.task.branch):
            assert host.mirror.fetch_contents(host.task.base_commit) == ""
    assert has(host.mirror, hashlib.sha256(content).hexdigest())


def test_m6_a_host_that_does_not_trust_the_authority_says_so_and_what_to_do(
    host: Host, other_authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default_store(monkeypatch, file=other_authority, folder=None)
    with pytest.raises(TemporaryFault) as raised:
        host.portal.hello()
    assert str(raised.value) == (
        f"The certificate of {host.url} is not trusted: self-signed certificate; name the authority's "
        "certificate in SSL_CERT_FILE"
    )


def test_m6_the_same_variable_counts_for_both(
    host: Host, authority: Path, other_authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE first: if it names another authority, neither requests nor git trusts the portal."""
    monkeypatch.setenv("SSL_CERT_FILE", str(other_authority))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    monkeypatch.setenv("GIT_SSL_CAINFO", str(authority))
    with pytest.raises(TemporaryFault, match="is not trusted"):
        host.portal.hello()
    _, variables = host.portal.git(host.mirror).process("fetch")
    assert variables["GIT_SSL_CAINFO"] == str(other_authority)


def test_m6_a_certificate_for_another_name_is_not_mended_by_naming_an_authority(
    host: Host, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    elsewhere = Host(host.url.replace("localhost", "127.0.0.1"), host.token, host.task, host.folder)
    with pytest.raises(TemporaryFault, match="is not valid: IP address mismatch") as raised:
        elsewhere.portal.hello()
    assert "SSL_CERT_FILE" not in str(raised.value)


@pytest.mark.parametrize("content", [None, "no certificate\n"])
def test_m6_a_list_of_authorities_that_cannot_be_read_is_named(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    path = tmp_path / "root.pem"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(TemporaryFault, match=f"^SSL_CERT_FILE: .*{path} "):
        host.portal.hello()


def test_m6_a_server_without_tls_is_called_that(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as url:
        wrong = mirror.Portal(url.replace("http:", "https:").replace("127.0.0.1", "localhost"), "token")
        with pytest.raises(TemporaryFault, match=r"cannot be reached \(SSLError: .*\)$"):
            wrong.hello()


def test_git_of_sources_keeps_its_own_authorities(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    _, variables = Git().process("fetch")
    assert "GIT_SSL_CAINFO" not in variables
    monkeypatch.setenv("GIT_SSL_CAINFO", "/etc/own.pem")
    _, variables = Git().process("fetch")
    assert variables["GIT_SSL_CAINFO"] == "/etc/own.pem"


async def healthy(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok\n"})


def test_doctor_trusts_the_same_authorities(
    authority: Path, other_authority: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(healthy, certificate=authority) as url:
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"url": url})
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        (sound,) = services.web()
        monkeypatch.setenv("SSL_CERT_FILE", str(other_authority))
        (refused,) = services.web()
        monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/root.pem")
        (unreadable,) = services.web()
    assert (sound.level, sound.text) == (Level.OK, f"answers at {url}")
    assert refused.level is Level.PROBLEM and "SSL_CERT_FILE" in refused.advice
    assert unreadable.text.startswith("SSL_CERT_FILE: the file /nonexistent/root.pem cannot be read")


class TestDefaultStore:
    def test_a_folder_is_one_for_both(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "0b1b94ef.0").touch()
        set_default_store(monkeypatch, file=None, folder=tmp_path)
        found = authorities.of_portal()
        assert found.path == tmp_path and found.variables_of_git == (("GIT_SSL_CAPATH", str(tmp_path)),)

    def test_a_folder_that_a_person_named_comes_before_the_systems_file(
        self, tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "0b1b94ef.0").touch()
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        set_default_store(monkeypatch, file=authority, folder=tmp_path)
        assert authorities.of_portal().path == tmp_path

    def test_a_system_that_has_its_list_elsewhere(
        self, tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its folder has no names that are hashes, so OpenSSL finds nothing there."""
        (tmp_path / "ca-bundle.crt").touch()
        set_default_store(monkeypatch, file=None, folder=tmp_path)
        monkeypatch.setattr(authorities, "_SYSTEM_FILES", (tmp_path / "none.pem", authority))
        assert authorities.of_portal().path == authority

    def test_a_machine_without_a_store_has_the_public_authorities(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_default_store(monkeypatch, file=None, folder=tmp_path)
        monkeypatch.setattr(authorities, "_SYSTEM_FILES", ())
        found = authorities.of_portal()
        assert found.path == Path(DEFAULT_CA_BUNDLE_PATH)
        assert found.variables_of_git == (("GIT_SSL_CAINFO", str(found.path)),)
