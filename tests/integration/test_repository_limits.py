"""M7: the portal's own git takes a bounded amount of memory, whatever is in a repository."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tasks_app.core.errors import WorkspaceError
from tasks_app.git import Repository, changed_files, diff, program
from tasks_app.web.rendering.diff import parse_diff
from tests.integration.git_repository import GitRepository

_LOOK = """
import resource, sys
from pathlib import Path
from tasks_app.git import Repository, changed_files, diff
repository = Repository(Path(sys.argv[1]), "source")
print(diff(repository, base=sys.argv[2], head=sys.argv[3]))
print([(file.path, file.status) for file in changed_files(repository, base=sys.argv[2], head=sys.argv[3])])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Repository, str, str]:
    """A text file of 40 MB of which each line is changed."""
    source = GitRepository.make(tmp_path / "source", small="one\n")
    lines = [f"line {number} of a long text\n" for number in range(1_450_000)]
    base = source.commit(**{"big.txt": "".join(lines), "small": "two\n"})
    head = source.commit(**{"big.txt": "".join(reversed(lines)), "small": "three\n"})
    repository = Repository(tmp_path / "repository.git", str(source.path))
    repository.fetch()
    return repository, base, head


def test_a_text_that_is_too_large_is_refused_and_takes_little_memory(
    repository: tuple[Repository, str, str],
) -> None:
    """Comparing it line by line took 1.6 GB. Counted for the largest git of a process of its own."""
    own, base, head = repository
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, str(own.path), base, head], capture_output=True, text=True, check=True
    )
    *said, files, kilobytes = done.stdout.splitlines()
    assert files == "[('big.txt', 'M'), ('small', 'M')]"
    assert "[… this file is larger than 16 MB and not shown here …]" in said
    assert "+three" in said and "Binary files" not in done.stdout
    assert int(kilobytes) < 300_000
    big, small = parse_diff("\n".join(said))
    assert (big.path, small.added) == ("big.txt", 1)
    assert "larger than 16 MB" in big.lines[0].text


def test_a_small_binary_file_is_still_called_one(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "source", a="one\n")
    base = source.git("rev-parse", "HEAD")
    head = source.commit(picture="\0\1\2")
    repository = Repository(tmp_path / "repository.git", str(source.path))
    repository.fetch()
    assert "Binary files" in diff(repository, base=base, head=head)
    assert [file.path for file in changed_files(repository, base=base, head=head)] == ["picture"]


def test_a_git_that_wants_more_than_it_may_have_fails_with_a_sentence(
    repository: tuple[Repository, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, base, head = repository
    monkeypatch.setattr(program, "memory_limit", 60 * 1024**2)
    with pytest.raises(WorkspaceError, match=r"git diff needed more than the 60 MB .*CATHERDER_GIT_MEMORY"):
        own.git.run("diff", "--binary", base, head)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY, "the portal has no such limit"
