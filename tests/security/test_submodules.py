"""M5, R4: a committed .gitmodules has the portal read nothing that the installation does not allow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git import Repository
from tasks_app.git.submodules import (
    MOST,
    AllowedSources,
    Submodule,
    SubmoduleStore,
    absolute_url,
    fault_words,
)
from tests.integration.git_repository import GitRepository

SOURCE = "https://git.example.org/acme/shop.git"
HOSTILE = [
    "ext::sh -c 'touch /tmp/broken-in'",
    "ext::git-upload-pack%20/etc",
    "file:///srv/git/secret",
    "FILE:///srv/git/secret",
    "fd::17",
    "http://git.example.org/acme/lib",
    "git://git.example.org/acme/lib",
    "lib",
    "~/lib",
    "/srv/git/secret",
    "/etc/../srv/git/secret",
    "git@git.example.org:acme/secret.git",
    "ssh://git@git.example.org/acme/secret.git",
    "ssh://-oProxyCommand=touch/x",
    "-u./payload",
    "--upload-pack=touch x",
    "https://other.example.org/acme/lib",
    "https://git.example.org:8443/acme/lib",
    "https://git.example.org:x/acme/lib",
    "https://git.example.org@other.example.org/lib",
    "https://user:password@git.example.org/lib",
    "https://user@git.example.org/lib",
    "https://git.example.org/acme/../../lib",
    "https://git.example.org/acme/%2e%2E/lib",
    "https://git.example.org\\@other.example.org/lib",
    "https://git.example.org/lib\nhttps://x",
    "",
]


@pytest.mark.parametrize("url", HOSTILE)
def test_urls_that_the_installation_does_not_allow_are_refused(url: str) -> None:
    with pytest.raises(BadInput):
        AllowedSources(SOURCE).require(url)


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://git.example.org/acme/lib.git", SOURCE),
        ("https://GIT.example.org:443/other/lib", SOURCE),
        ("https://git.example.org/acme/lib", "git@git.example.org:acme/shop.git"),
        ("https://git.example.org/acme/lib", "ssh://git@git.example.org:2222/acme/shop.git"),
    ],
)
def test_the_host_of_the_source_is_open_over_https(url: str, source: str) -> None:
    assert AllowedSources(source).require(url) == url


@pytest.mark.parametrize(
    ("listed", "url", "allowed"),
    [
        ("https://", "https://any.example.com/lib", True),
        ("https://", "git@any.example.com:lib", False),
        ("https://", "/srv/git/lib", False),
        ("https://github.com/acme", "https://github.com/acme/lib", True),
        ("https://github.com/acme", "https://github.com/acme-evil/lib", False),
        ("https://github.com/acme", "https://github.com/acme/../evil/lib", False),
        ("git@github.com:acme", "git@github.com:acme/lib.git", True),
        ("git@github.com:acme", "git@github.com:evil/lib.git", False),
        ("git@github.com:", "git@github.com:any/lib.git", True),
        ("git@github.com:acme", "root@github.com:acme/lib.git", False),
        ("ssh://git@h/acme", "ssh://git@h/acme/lib", True),
        ("ssh://git@h/acme", "ssh://git@h:2222/acme/lib", False),
    ],
)
def test_a_listed_source_allows_what_is_below_it(listed: str, url: str, allowed: bool) -> None:
    sources = AllowedSources("/srv/git/shop", (listed,))
    if allowed:
        assert sources.require(url) == url
    else:
        with pytest.raises(BadInput):
            sources.require(url)


def test_listed_folders_end_at_links_and_at_the_portals_own(tmp_path: Path) -> None:
    listed, data, outside = tmp_path / "git", tmp_path / "git" / "data", tmp_path / "outside"
    for folder in (listed / "lib", data / "repositories", outside):
        folder.mkdir(parents=True)
    (listed / "link").symlink_to(outside)
    sources = AllowedSources("/srv/shop", (str(listed),), (data,))
    assert sources.require(str(listed / "lib")) == str(listed / "lib")
    for path in (listed / "link", data / "repositories", tmp_path / "git-evil", listed / ".." / "outside"):
        with pytest.raises(BadInput):
            sources.require(str(path))
    with pytest.raises(BadInput, match="a worker host does not have"):
        AllowedSources("/srv/shop", (str(listed),), local=False).require(str(listed / "lib"))


@pytest.mark.parametrize(
    ("url", "parent", "absolute"),
    [
        ("../lib.git", SOURCE, "https://git.example.org/acme/lib.git"),
        ("../../other/lib", SOURCE, "https://git.example.org/other/lib"),
        ("./lib", SOURCE + "/", "https://git.example.org/acme/shop.git/lib"),
        ("../lib", "git@host:acme/shop", "git@host:acme/lib"),
        ("../../lib", "git@host:acme/shop", "git@host:lib"),
        ("../lib", "/srv/git/shop", "/srv/git/lib"),
        ("../../../../lib", SOURCE, None),
        ("../../../lib", "git@host:acme/shop", None),
        ("https://x/lib", SOURCE, "https://x/lib"),
    ],
)
def test_relative_urls_begin_at_the_parents_and_stay_at_its_host(
    url: str, parent: str, absolute: str | None
) -> None:
    if absolute is None:
        with pytest.raises(BadInput, match="leads out of"):
            absolute_url(url, parent)
    else:
        assert absolute_url(url, parent) == absolute


def fetched(folder: Path, source: GitRepository) -> tuple[Submodule, ...]:
    """Fetch the submodules of a repository; those in the folder `git` are allowed, too."""
    repository = Repository(folder / "data" / "1.git", str(source.path))
    repository.fetch()
    sources = AllowedSources(str(source.path), (str(folder / "git"),))
    head = repository.head("main")
    return SubmoduleStore(folder / "data" / "modules", sources).fetch(repository, head, declared_in=head)


def bring(folder: Path, modules: str, *, link_at: str = "lib") -> None:
    """Fetch the submodules of a repository with this .gitmodules and one gitlink."""
    library = GitRepository.make(folder / "git" / "lib", a="1\n")
    source = GitRepository.make(folder / "git" / "shop", a="1\n")
    (source.path / ".gitmodules").write_text(modules)
    source.git("add", ".gitmodules")
    commit = library.git("rev-parse", "HEAD")
    source.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{link_at}")
    source.git("commit", "--quiet", "-m", "Add")
    fetched(folder, source)


@pytest.mark.parametrize(
    "modules",
    [
        '[submodule "../../hooks"]\n\tpath = lib\n\turl = ../lib\n',
        '[submodule "a"]\n\tpath = ../lib\n\turl = ../lib\n',
        '[submodule "a"]\n\tpath = /lib\n\turl = ../lib\n',
        '[submodule "-a"]\n\tpath = lib\n\turl = ../lib\n',
        '[submodule "a\\\\..\\\\b"]\n\tpath = lib\n\turl = ../lib\n',
    ],
)
def test_names_and_paths_that_lead_elsewhere_are_refused(tmp_path: Path, modules: str) -> None:
    with pytest.raises(WorkspaceError, match="which is refused"):
        bring(tmp_path, modules)


@pytest.mark.parametrize("url", ["ext::touch broken-in", "file://{0}/secret", "{0}/secret", "../../secret"])
def test_nothing_is_run_and_nothing_is_read_elsewhere(tmp_path: Path, url: str) -> None:
    GitRepository.make(tmp_path / "secret", key="s3cret\n")
    text = f'[submodule "a"]\n\tpath = lib\n\turl = {url.format(tmp_path)}\n'
    with pytest.raises(WorkspaceError, match="The submodule lib cannot be fetched"):
        bring(tmp_path, text)
    assert not list(tmp_path.rglob("broken-in")) and not (tmp_path / "data" / "modules").exists()


def test_settings_in_a_gitmodules_file_include_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('[submodule "a"]\n\tpath = lib\n\turl = s3cret\n')
    bring(tmp_path, f"[include]\n\tpath = {secret}\n")  # no submodule is declared: its folder stays empty
    assert not (tmp_path / "data" / "modules").exists()


def test_a_gitmodules_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "shop", a="1\n")
    (source.path / "target").write_text("/etc/hostname")  # git adds no such link by itself
    blob = source.git("hash-object", "-w", "target")
    tree = subprocess.run(
        ["git", "-C", str(source.path), "mktree"],
        input=f"120000 blob {blob}\t.gitmodules\n", check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    source.git("update-ref", "refs/heads/main", source.git("commit-tree", "-m", "Link", tree))
    assert fetched(tmp_path, source) == ()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "asks for a login"),
        ("git@h: Permission denied (publickey).", "asks for a login"),
        ("fatal: unable to update url base from redirection: asked for", "the server redirects"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "Could not resolve host"),
    ],
)
def test_a_server_that_refuses_is_named_in_plain_words(said: str, reason: str) -> None:
    assert reason in fault_words(WorkspaceError(said))


def test_submodules_that_contain_each_other_end(tmp_path: Path) -> None:
    """A repository whose submodule is itself: an older commit, then that one's, until the limit."""
    source = GitRepository.make(tmp_path / "git" / "shop", a="1\n")
    (source.path / ".gitmodules").write_text('[submodule "a"]\n\tpath = lib\n\turl = ../shop\n')
    source.git("add", ".gitmodules")
    for _ in range(12):
        commit = source.git("rev-parse", "HEAD")
        source.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib")
        source.git("commit", "--quiet", "-m", "Add")
    with pytest.raises(WorkspaceError, match=f"more than {MOST} submodules, or they are nested"):
        fetched(tmp_path, source)
