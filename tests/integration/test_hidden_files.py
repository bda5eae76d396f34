"""P9, V1: what a workspace does not show is not deleted; further worktrees of a clone are not content."""

from __future__ import annotations

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import Run, Task, paths
from tasks_app.sandbox import SandboxMode, detect
from tests.fake_script import Turn, say, shell, write
from tests.integration.test_recording import git, published, told
from tests.runner import Runner, diff_of, file_in

pytestmark = pytest.mark.django_db(transaction=True)

FILES = {
    "README.md": "Read me.\n",
    "src/app.py": "app = 1\n",
    "src/lib/util.py": "util = 1\n",
    "docs/guide.md": "Guide.\n",
    "docs/old/notes.md": "Notes.\n",
}
ME = "git config user.name a; git config user.email a@b; "
SPARSE = "git sparse-checkout set --cone src"
#: Ways of not showing `docs`.
HIDING = {
    "a sparse checkout": SPARSE,
    "a sparse index": "git sparse-checkout set --cone --sparse-index src",
    "patterns": "git sparse-checkout set --no-cone '/*' '!/docs/'",
    "skip-worktree": "git ls-files -z docs | xargs -0 git update-index --skip-worktree && rm -r docs",
    "assume-unchanged": "git ls-files -z docs | xargs -0 git update-index --assume-unchanged && rm -r docs",
    "a split index": f"git update-index --split-index && {SPARSE}",
    "a sparse checkout whose index is gone": f"{SPARSE} && rm .git/index",
    "a sparse checkout whose index is broken": f"{SPARSE} && echo x > .git/index",
    "a sparse checkout whose .git is broken": f"{SPARSE} && echo x > .git/HEAD",
    "a sparse checkout that lacks objects": f"{SPARSE} && find .git/objects -type f -delete",
}


def done(runner: Runner, *commands: str, config: str = "", files: dict[str, str] = FILES) -> Task:
    """A task whose agent runs these commands has ended."""
    project = runner.project(config, **files) if config else runner.project(**files)
    play = [*(Turn(calls=(shell(ME + one),)) for one in commands), say("Done.")]
    task = runner.advance(runner.task(play, project=project))
    assert task.phase == Phase.DONE, (task.failure, told(task))
    return task


@pytest.mark.parametrize("way", HIDING)
def test_files_that_the_workspace_does_not_show_stay_in_the_result(runner: Runner, way: str) -> None:
    task = done(runner, f"{HIDING[way]} && echo 'app = 2' > src/app.py && rm src/lib/util.py")
    assert not file_in(task, "docs").exists(), "the way hides nothing"
    assert {"docs/guide.md", "docs/old/notes.md", "README.md"} <= published(task)
    if "whose index is" not in way:  # nothing says which of the absent files it did not show
        assert "src/lib/util.py" not in published(task), "what was deleted in full view is deleted"
        assert "2 files of the repository are not shown in the workspace" in told(task)
    assert "docs" not in diff_of(task) and "+app = 2" in diff_of(task)
    assert "docs/guide.md" in told(task)


def test_what_is_hidden_stays_hidden_in_the_steps_that_follow(runner: Runner) -> None:
    """With a checkpoint after each step, and a `.git` that was made anew in between."""
    config = """\
autoCommit: true
pipelines:
  default: [{name: a, command: implement}, {name: b, command: implement}, {name: c, command: implement}]
"""
    project = runner.project(config, **FILES)
    play = {
        "a": [Turn(calls=(shell(f"{SPARSE} && echo 2 > src/app.py"),)), say("Done.")],
        "b": [Turn(calls=(shell("echo 3 > src/app.py; rm -r .git/refs"),)), say("Done.")],
        "c": [Turn(calls=(shell("echo 4 > src/app.py; git status --porcelain > status.txt"),)), say("Done.")],
    }
    task = runner.advance(runner.task(play, project=project))
    assert task.phase == Phase.DONE, task.failure
    assert set(FILES) <= published(task)
    repository = paths.repository(task.project).path
    assert "docs" not in git(repository, "show", f"{task.branch}:status.txt"), "the agent's git knows it, too"
    for run in Run.objects.filter(step__task=task):
        assert "docs/guide.md" in git(repository, "ls-tree", "-r", "--name-only", run.head_commit)


@pytest.mark.parametrize(
    ("command", "there", "gone"),
    [
        ("git rm -q --sparse -r docs/old", {"docs/guide.md"}, {"docs/old/notes.md"}),
        ("git rm -q --cached --sparse docs/guide.md", {"docs/old/notes.md"}, {"docs/guide.md"}),
        ("git sparse-checkout disable; rm docs/guide.md", {"docs/old/notes.md"}, {"docs/guide.md"}),
        ("echo x > docs", {"docs"}, {"docs/guide.md", "docs/old/notes.md"}),
        ("mkdir docs; echo x > docs/guide.md", {"docs/guide.md", "docs/old/notes.md"}, set()),
    ],
)
def test_what_an_agent_deletes_on_purpose_is_deleted(
    runner: Runner, command: str, there: set[str], gone: set[str]
) -> None:
    task = done(runner, f"{SPARSE} && {command}")
    assert there <= published(task) and not gone & published(task)


def test_what_is_staged_of_a_hidden_file_is_recorded(runner: Runner) -> None:
    """It is nowhere else: a patch to the index, and a new file that a sparse checkout has taken away."""
    staged = (
        "id=$(echo Better. | git hash-object -w --stdin);"
        " git update-index --cacheinfo 100644,$id,docs/guide.md;"
        " git update-index --skip-worktree docs/guide.md;"
        " mkdir -p more; echo n > more/new.txt; git add --sparse more; git sparse-checkout reapply"
    )
    task = done(runner, f"{SPARSE} && {staged}")
    assert not file_in(task, "more/new.txt").exists()
    assert "+Better." in diff_of(task) and "more/new.txt" in published(task)


def test_a_full_checkout_keeps_no_deleted_file(runner: Runner) -> None:
    task = done(runner, "rm -r docs && git add -A && rm README.md")
    assert published(task) == {"cat-herder.yaml", "src/app.py", "src/lib/util.py"}
    assert "not shown" not in told(task)


def test_a_partial_clone_with_a_sparse_checkout_loses_nothing(runner: Runner) -> None:
    """The clone lacks the contents of what it does not show: the portal has them."""
    partial = (
        f"{SPARSE} && git config remote.origin.url /nowhere && git config remote.origin.promisor true"
        " && git config remote.origin.partialCloneFilter blob:none"
        " && mv .git/objects/pack packs && cat packs/*.pack | git unpack-objects -q && rm -rf packs;"
        " file=$(git rev-parse HEAD:docs/guide.md);"
        " rm -f .git/objects/$(echo $file | cut -c1-2)/$(echo $file | cut -c3-);"
        " ! git cat-file -e $file && echo 2 > src/app.py"
    )
    task = done(runner, partial)
    assert set(FILES) <= published(task) and ".git" not in told(task)
    assert "docs" not in diff_of(task)


STOLEN = "git update-index --add --info-only --cacheinfo 100644,$secret,stolen.txt; "
COMMIT = (
    "git update-ref HEAD $(git commit-tree -m x -p HEAD $(git write-tree --missing-ok));"
    " git update-index --skip-worktree stolen.txt"
)
#: How a clone may name an object that it does not have; the last two have another content under its id.
STEALING = {
    "staged": STOLEN + "git update-index --skip-worktree stolen.txt",
    "committed": STOLEN + COMMIT,
    "forged content": f"{STOLEN} forge blob $secret 'no secret'; {COMMIT}",
    "forged folder": "base=$(git rev-parse HEAD^{tree}); forge_tree $base; " + STOLEN + COMMIT,
}
FORGE = """
forge() { python3 - "$@" <<'EOF'
import sys, zlib, pathlib
kind, name, text = sys.argv[1:]
text = text.encode() if kind == "blob" else bytes.fromhex(text)
path = pathlib.Path(".git/objects", name[:2], name[2:])
path.parent.mkdir(exist_ok=True)
path.unlink(missing_ok=True)
path.write_bytes(zlib.compress(f"{kind} {len(text)}".encode() + bytes(1) + text))
EOF
}
forge_tree() {
    mv .git/objects/pack packs; cat packs/*.pack | git unpack-objects -q; rm -rf packs
    entry=$(printf '100644 stolen.txt' | od -An -tx1 | tr -d ' \\n')00$secret
    forge tree $1 $(git cat-file tree $1 | od -An -v -tx1 | tr -d ' \\n')$entry
}
"""


@pytest.mark.parametrize("way", STEALING)
def test_a_clone_gets_no_content_of_another_task_by_naming_it(runner: Runner, way: str) -> None:
    """P9. The portal's repository has the object, and a partial clone may lack some."""
    project = runner.project(**FILES)
    secretive = [Turn(calls=(write("secret.txt", "secret"),)), say("Done.")]
    other = runner.advance(runner.task(secretive, project=project))
    secret = git(paths.repository(project).path, "rev-parse", f"{other.head_commit}:secret.txt").strip()
    partial = "git config remote.origin.promisor true; git config remote.origin.partialCloneFilter blob:none"
    command = f"{ME}\n{partial}\nsecret={secret}\n{FORGE}\n{STEALING[way]}"
    play = [Turn(calls=(shell(command), write("mine.txt", "x"))), say("Done.")]
    task = runner.advance(runner.task(play, project=project))
    repository = paths.repository(project)
    listed = git(repository.path, "rev-list", "--objects", task.head_commit or task.base_commit)
    assert secret not in listed, told(task)
    assert "mine.txt" in published(task), told(task)


FILTER = "git config filter.short.smudge 'head -1' && git config filter.short.clean 'git show :%f' && "
LONG = {"long.txt": "one\ntwo\nthree\n", "other.txt": "one\ntwo\n"}


@pytest.mark.parametrize("where", [".gitattributes", ".git/info/attributes"])
def test_files_that_a_filter_shows_in_part_are_kept_as_they_are_stored(runner: Runner, where: str) -> None:
    """Unless the agent has changed them."""
    command = (
        f"{FILTER} mkdir -p .git/info && echo '*.txt filter=short' >> {where} && rm *.txt"
        " && git checkout -q -- . && sleep 0.1 && git update-index --force-write-index"
        " && echo changed > other.txt"
    )
    task = done(runner, command, files={**FILES, **LONG})
    assert file_in(task, "long.txt").read_text() == "one\n", "the filter shows everything"
    repository = paths.repository(task.project).path
    assert git(repository, "show", f"{task.branch}:long.txt") == LONG["long.txt"]
    assert git(repository, "show", f"{task.branch}:other.txt") == "changed\n"
    assert "as they are stored: long.txt" in told(task)


@pytest.mark.parametrize("where", ["wt", ".claude/worktrees/idea", "../beside"])
def test_a_further_worktree_is_neither_content_nor_a_nested_repository(runner: Runner, where: str) -> None:
    command = f"git worktree add -q -b idea {where} && echo mine > work.txt"
    task = done(runner, command)
    assert published(task) == {*FILES, "cat-herder.yaml", "work.txt"}
    assert "Nested" not in told(task)
    if not where.startswith(".."):
        assert f"Worktree {where}/" in told(task)


def test_work_that_is_only_in_a_further_worktree_is_said(runner: Runner) -> None:
    command = (
        "git worktree add -q --detach wt && cd wt && echo x > new.txt && git commit -q --allow-empty -m x"
    )
    task = done(runner, command)
    assert not {name for name in published(task) if name.startswith("wt")}
    (note,) = [note for note in task.left_out if "wt/" in note]
    assert "1 changed or new files and commits that no branch has" in note
    assert git(file_in(task, "wt"), "status", "--porcelain") == "?? new.txt\n", "it is as it was"


@pytest.mark.parametrize("then", ["git worktree prune", "rm -rf .git/worktrees", "rm -rf .git"])
def test_a_worktree_that_git_has_forgotten_is_no_content_either(runner: Runner, then: str) -> None:
    task = done(runner, f"git worktree add -q wt && echo x > wt/new.txt && mv wt wt2 && {then}; mv wt2 wt")
    assert not {name for name in published(task) if name.startswith("wt")}


def test_p7_ignored_worktrees_are_not_held_against_the_guard(runner: Runner) -> None:
    config = "pipelines: {default: [{name: do, command: implement, fileAccess: {allowWrite: [src/**]}}]}\n"
    files = {**FILES, ".gitignore": "/trees/\n"}
    command = "git worktree add -q trees/idea && echo x > trees/idea/new.txt && echo 2 > src/app.py"
    task = done(runner, command, config=config, files=files)
    assert set(FILES) <= published(task)


def test_p7_a_hidden_file_is_no_change_for_the_guard(runner: Runner) -> None:
    config = "pipelines: {default: [{name: do, command: implement, fileAccess: {allowWrite: [src/**]}}]}\n"
    task = done(runner, f"{SPARSE} && echo 2 > src/app.py", config=config)
    assert set(FILES) <= published(task)


def test_a_setup_that_turns_on_a_sparse_checkout_deletes_nothing(runner: Runner) -> None:
    config = f"setup: [{SPARSE!r}]\npipelines: {{default: [{{name: do, command: self}}]}}\n"
    project = runner.project(config, **FILES)
    task = runner.advance(
        runner.task([Turn(calls=(write("src/new.py", "x"),)), say("Done.")], project=project)
    )
    assert task.phase == Phase.DONE, task.failure
    assert not file_in(task, "docs").exists() and set(FILES) <= published(task)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("way", ["a sparse checkout", "a sparse checkout whose .git is broken"])
def test_the_same_holds_for_a_recording_in_the_sandbox(runner: Runner, way: str) -> None:
    runner.sandbox = detect(SandboxMode.REQUIRE)
    command = (
        f"{FILTER} mkdir -p .git/info && echo 'README.md filter=short' >> .git/info/attributes"
        f" && git worktree add -q wt && echo x > wt/new.txt && {HIDING[way]} && rm src/lib/util.py"
    )
    task = done(runner, command)
    assert not file_in(task, "docs").exists()
    assert published(task) == {*FILES, "cat-herder.yaml"} - {"src/lib/util.py"}
    assert "Worktree wt/" in told(task) and "docs/guide.md" in told(task)
    assert "docs" not in git(file_in(task, "."), "status", "--porcelain"), "the marks are kept"
