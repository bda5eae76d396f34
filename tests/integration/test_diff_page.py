"""The diff page: tree, colours, context, split view, viewed files, images, and what it costs (V2)."""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Channel,
    Project,
    ReviewThread,
    ReviewVerdict,
    Run,
    Task,
    ThreadState,
    User,
    ViewedFile,
    paths,
)
from tasks_app.permissions import Principal
from tasks_app.services.reviews import NewThread, add_to_draft, send_review
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, RunFactory, TaskFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.markup import tidy

pytestmark = pytest.mark.django_db

HTMX: dict[str, Any] = {"headers": {"HX-Request": "true"}}
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
CODE = "".join(f"def function_{n}(price):\n    return price * {n}\n" for n in range(40))


class Shop:
    """A project whose source the test commits to, and a user who sees it."""

    def __init__(self, folder: Path) -> None:
        self.source = GitRepository.make(folder, **{"README.md": "# shop\n"})
        self.project: Project = ProjectFactory.create(source=str(folder))
        self.user: User = UserFactory.create()
        MembershipFactory.create(project=self.project, user=self.user)
        self.browser = signed_in(self.user)

    def commit(self, **files: str | bytes) -> str:
        for name, content in files.items():
            path = self.source.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.source.commit()

    def task(self, base: str, head: str) -> Task:
        paths.repository(self.project).fetch()
        task: Task = TaskFactory.create(
            project=self.project, base_commit=base, head_commit=head, created_by=self.user
        )
        return task

    def get(self, name: str, task: Task, htmx: bool = False, **query: Any) -> Any:
        return self.browser.get(reverse(name, args=[task.pk]), query, **(HTMX if htmx else {}))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop")


@pytest.fixture
def git_processes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The processes that were started, by the name of what they do."""
    started: list[str] = []
    original: Callable[..., Any] = subprocess.Popen.__init__

    def counted(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        started.append(" ".join(map(str, args)))
        original(self, args, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    return started


def plain(page: Any) -> str:
    """The text of a page without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", page.text))


def urls(page: Any, name: str, task: Task) -> list[str]:
    """The URLs on a page that lead to this view of the task."""
    found = re.findall(r'(?:hx-get|href|src)="([^"]*)"', page.text)
    return [html.unescape(url) for url in found if url.startswith(reverse(name, args=[task.pk]) + "?")]


def test_the_tree_lists_every_file_with_its_counts(shop: Shop) -> None:
    base = shop.commit(**{"old name.txt": "1\n" * 30, "shop/gone.py": "x\n"})
    shop.source.git("mv", "old name.txt", "new name.txt")
    shop.source.git("rm", "-q", "shop/gone.py")
    task = shop.task(base, shop.commit(**{"shop/web/pages/a.py": "1\n2\n", "shop/b.py": "1\n"}))
    page = shop.get("task_diff", task)
    tree = tidy(page.text[page.text.index('id="file-tree"') : page.text.index("</aside>")])
    rows = re.findall(r'aria-level="(\d)".*?tree-name">([^<]*)<', tree)
    assert rows == [
        ("1", "shop"), ("2", "web/pages"), ("3", "a.py"), ("2", "b.py"), ("2", "gone.py"),
        ("1", "new name.txt"),
    ]  # fmt: skip
    assert "old name.txt → new name.txt" in page.text
    assert re.search(r'title="shop/web/pages/a.py".*?\+2</span>', tree, re.DOTALL)
    linked = re.findall(r'href="#(file-[0-9a-f]+)"', tree)
    assert len(linked) == 4 and all(f'id="{anchor}"' in page.text for anchor in linked)


LIBRARY = ["1" * 40, "2" * 40]


@pytest.fixture
def of_all_types(shop: Shop) -> Task:
    """A task that has changed types and modes of files, and no line of most of them."""
    (shop.source.path / "moved").symlink_to("old target")
    (shop.source.path / "was-link").symlink_to("README.md")
    for name in ("run.sh", "quiet.sh", "became-link", "became-link-small", "edited.sh"):
        (shop.source.path / name).write_text(f"{name}\n" * (1 if "small" in name else 3))
    (shop.source.path / "quiet.sh").chmod(0o755)
    shop.source.git("update-index", "--add", "--cacheinfo", f"160000,{LIBRARY[0]},lib")
    shop.source.git("add", "--all", "--", ":!lib")
    shop.source.git("commit", "-qm", "Before")
    base = shop.source.git("rev-parse", "HEAD")
    for name, target in {
        "moved": "a <b>new</b>\ntarget", "became-link": "/etc/passwd", "became-link-small": "run.sh",
        "new-link": "edited.sh",
    }.items():  # fmt: skip
        (shop.source.path / name).unlink(missing_ok=True)
        (shop.source.path / name).symlink_to(target)
    (shop.source.path / "was-link").unlink()
    (shop.source.path / "was-link").write_text("own text\n")
    (shop.source.path / "run.sh").chmod(0o755)
    (shop.source.path / "quiet.sh").chmod(0o644)
    (shop.source.path / "edited.sh").write_text("edited.sh\nand more\n")
    (shop.source.path / "edited.sh").chmod(0o755)
    (shop.source.path / "new.sh").write_text("new\n")
    (shop.source.path / "new.sh").chmod(0o755)
    (shop.source.path / "empty.txt").touch()
    shop.source.git("update-index", "--add", "--cacheinfo", f"160000,{LIBRARY[1]},lib")
    shop.source.git("update-index", "--add", "--cacheinfo", f"160000,{LIBRARY[1]},new-lib")
    shop.source.git("add", "--all", "--", ":!lib", ":!new-lib")
    shop.source.git("commit", "-qm", "After")
    return shop.task(base, shop.source.git("rev-parse", "HEAD"))


NOTES = {
    "run.sh": "now executable",
    "quiet.sh": "no longer executable",
    "edited.sh": "now executable",
    "new.sh": "executable file",
    "became-link": "was a file, is now a link to /etc/passwd",
    "became-link-small": "was a file, is now a link to run.sh",
    "was-link": "was a link to README.md, is now a file",
    "moved": "link, from old target to a <b>new</b>␊target",
    "new-link": "link to edited.sh",
    "lib": f"submodule, from {10 * '1'} to {10 * '2'}",
    "new-lib": f"submodule at {10 * '2'}",
    "empty.txt": "",
}


def test_types_and_modes_are_shown_of_each_file(shop: Shop, of_all_types: Task) -> None:
    """V2. Not as lines: the target of a link is no text, and an executable bit is no line."""
    page = shop.get("task_diff", of_all_types)
    boxes = dict(
        re.findall(r'class="file-box" id="[^"]*" data-path="([^"]*)"(.*?)class="file-tools', page.text, re.S)
    )
    assert boxes.keys() == NOTES.keys()
    for name, note in NOTES.items():
        shown = re.findall(r'class="file-note">([^<]*)<', boxes[name])
        assert [html.unescape(one) for one in shown] == ([note] if note else []), name
        assert "No lines were changed" not in boxes[name]
    assert "<b>new" not in page.text
    lines = {name: re.findall(r'class="dl dl-(add|del)', box) for name, box in boxes.items()}
    assert lines["became-link"] == ["del"] * 3 and lines["was-link"] == ["add"]
    without = {"run.sh", "quiet.sh", "moved", "new-link", "lib", "new-lib", "empty.txt"}
    assert not any(lines[name] for name in without)
    assert "The file is empty." in boxes["empty.txt"] and "Now executable." in boxes["run.sh"]
    for name in without:
        assert '+0</span> <span class="minus">−0' in boxes[name], name


def test_each_file_shows_its_type_where_it_is_loaded_alone(shop: Shop, of_all_types: Task) -> None:
    for name in NOTES:
        page = shop.get("task_diff", of_all_types, htmx=True, file=name)
        assert page.status_code == 200
        assert "No lines were changed" not in page.text and "Subproject commit" not in page.text, name


def test_the_result_shows_type_and_mode(shop: Shop, of_all_types: Task) -> None:
    """V1."""
    Task.objects.filter(pk=of_all_types.pk).update(phase=Phase.DONE)
    page = shop.get("task_result", of_all_types)
    link, status = r'<a class="machine"[^>]*>([^<]*)</a>', r'(?:<span class="quiet">\w+</span>)?'
    shown = dict(re.findall(f'{link}{status}<span class="file-note">([^<]*)<', tidy(page.text)))
    expected = {name: note for name, note in NOTES.items() if note}
    assert {name: html.unescape(note) for name, note in shown.items()}.items() <= expected.items()
    assert len(shown) >= 9


def test_the_api_names_type_and_mode(shop: Shop, of_all_types: Task) -> None:
    """W5."""
    answer = shop.browser.get(f"/api/v1/tasks/{of_all_types.pk}/diff").json()
    assert {file["path"]: file["note"] for file in answer["files"]} == NOTES
    (link,) = [file for file in answer["files"] if file["path"] == "became-link"]
    assert (link["status"], link["added"], link["removed"], link["old_path"]) == ("changed", 0, 3, "")


def test_a_file_that_was_viewed_is_not_after_its_mode_was_changed(shop: Shop) -> None:
    base = shop.source.git("rev-parse", "HEAD")
    before = shop.commit(**{"run.sh": "echo\n"})
    task = shop.task(base, before)
    (shown,) = re.findall(r'name="blob" value="([^"]*)"', shop.get("task_diff", task).text)
    url = reverse("diff_viewed", args=[task.pk])
    assert shop.browser.post(url, {"file": "run.sh", "blob": shown, "viewed": "yes"}).status_code == 302
    assert "1/1 viewed" in plain(shop.get("task_diff", task))
    (shop.source.path / "run.sh").chmod(0o755)
    Task.objects.filter(pk=task.pk).update(head_commit=shop.source.commit())
    paths.repository(shop.project).fetch()
    assert "0/1 viewed" in plain(shop.get("task_diff", task))


def test_code_is_coloured_and_stays_text(shop: Shop) -> None:
    """R4: what an agent writes is never markup, whatever Pygments makes of it."""
    base = shop.source.git("rev-parse", "HEAD")
    hostile = '"</span><script>alert(1)</script>"'
    task = shop.task(base, shop.commit(**{"a.py": f"def total():\n    return {hostile}  # <b>\n"}))
    page = shop.get("task_diff", task)
    assert '<span class="s-k">def</span>' in page.text and '<span class="s-f">total</span>' in page.text
    assert "&lt;/span&gt;&lt;script&gt;" in page.text and "<script>alert" not in page.text
    assert f"return {hostile}  # <b>" in plain(page)


def test_a_text_that_is_too_long_to_colour_is_plain(shop: Shop) -> None:
    base = shop.source.git("rev-parse", "HEAD")
    files = {"long.py": "x = 1\n" * 30 + f"y = '{'z' * 3000}'\n", "odd.unknown": "def total()\n"}
    page = shop.get("task_diff", shop.task(base, shop.commit(**files)))
    assert 'class="s-' not in page.text and "x = 1" in plain(page) and "def total()" in plain(page)


def test_colours_end_with_their_time_limit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: a text for which Pygments takes minutes costs colours, not the page."""
    monkeypatch.setattr("tasks_app.web.rendering.syntax.TIME_LIMIT", 0.0)
    base = shop.source.git("rev-parse", "HEAD")
    page = shop.get("task_diff", shop.task(base, shop.commit(**{"slow.py": "def slow():\n"})))
    assert 'class="s-' not in page.text and "def slow():" in plain(page)


def test_a_hunk_names_its_method_and_shows_more_lines(shop: Shop) -> None:
    code = "class Till:\n    def first(self):\n" + "        pass\n" * 90
    base = shop.commit(**{"code.py": code})
    text = (shop.source.path / "code.py").read_text().splitlines(keepends=True)
    text[60] = "        return 1\n"
    task = shop.task(base, shop.commit(**{"code.py": "".join(text)}))
    page = shop.get("task_diff", task)
    assert re.search(r'dl-hunk">.*?def first\(self\):</span>', tidy(page.text))
    expanding = urls(page, "diff_lines", task)
    assert [re.search(r"part=(\w+)", url)[1] for url in expanding] == [  # type: ignore[index]
        "bottom", "all", "top", "all",
    ]  # fmt: skip
    above = shop.browser.get(expanding[0])
    assert re.findall(r'data-line="(\d+)"', above.text) == [str(n) for n in range(38, 58)]
    assert len(urls(above, "diff_lines", task)) == 2 and 'class="s-k"' in above.text
    everything = shop.browser.get(expanding[1])
    assert re.findall(r'data-line="(\d+)"', everything.text) == [str(n) for n in range(1, 58)]
    assert "dl-hunk" not in everything.text
    below = shop.browser.get(expanding[2])
    assert re.findall(r'data-line="(\d+)"', below.text) == [str(n) for n in range(65, 85)]
    right: dict[str, Any] = {"file": "code.py", "first": 1, "last": 9, "offset": 0, "part": "all"}
    for wrong in ({"first": 0}, {"last": 999}, {"part": "none"}, {"offset": "x"}, {"file": "README.md"}):
        assert shop.get("diff_lines", task, **(right | wrong)).status_code == 404


def test_the_split_view_has_both_sides_and_is_kept(shop: Shop) -> None:
    base = shop.commit(**{"a.txt": "one\ntwo\nthree\nfour\n"})
    task = shop.task(base, shop.commit(**{"a.txt": "one\nTWO\nand more\nthree\nfour\n"}))
    assert 'class="dr"' not in shop.get("task_diff", task).text
    split = shop.get("task_diff", task, view="split")
    rows = re.findall(r'(?s)<div class="dr">(.*?</div>)\s*</div>', split.text)
    assert [re.sub("<[^>]*>|\n *", "", row) for row in rows] == [
        "1 one1 one", "2−two2+TWO", "3+and more", "3 three4 three", "4 four5 four",
    ]  # fmt: skip
    assert "dl-empty" in rows[2]
    assert 'class="dr"' in shop.get("task_diff", task).text, "the browser's choice is kept"
    assert 'class="dr"' not in shop.get("task_diff", task, view="unified", htmx=True).text
    assert 'class="dr"' in shop.get("task_diff", task).text, "a narrow window chooses for itself only"


def test_viewed_ends_with_the_content_and_is_ones_own(shop: Shop) -> None:
    base = shop.source.git("rev-parse", "HEAD")
    task = shop.task(base, shop.commit(**{"a.txt": "1\n", "b.txt": "other\n"}))
    blobs = dict(
        re.findall(
            r'name="file" value="([^"]*)".*?name="blob" value="([^"]*)"',
            tidy(shop.get("task_diff", task).text),
        )
    )

    def mark(viewed: str, blob: str = blobs["a.txt"], **given: Any) -> int:
        fields = {"file": "a.txt", "blob": blob, "viewed": viewed}
        done = shop.browser.post(reverse("diff_viewed", args=[task.pk]), fields, **given)
        return int(done.status_code)

    assert mark("yes", **HTMX) == mark("yes", **HTMX) == 204
    assert ViewedFile.objects.count() == 1
    page = shop.get("task_diff", task)
    assert "1/2 viewed" in page.text and "is-viewed" in page.text
    other = MembershipFactory.create(project=shop.project).user
    assert "0/2 viewed" in signed_in(other).get(reverse("task_diff", args=[task.pk])).text
    assert mark("yes", blob=blobs["b.txt"]) == 409, "what was looked at is not what is there"
    Task.objects.filter(pk=task.pk).update(head_commit=shop.commit(**{"a.txt": "2\n"}))
    paths.repository(shop.project).fetch()
    assert "0/2 viewed" in shop.get("task_diff", task).text
    Task.objects.filter(pk=task.pk).update(head_commit=task.head_commit)
    assert mark("no") == 302 and not ViewedFile.objects.exists()


def test_images_are_shown_and_nothing_else_is_served(shop: Shop) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    base = shop.commit(**{"logo.png": PNG, "data.bin": bytes(range(256))})
    changed = {
        "logo.png": PNG + b"\1",
        "data.bin": bytes(range(256)) * 8,
        "x.svg": svg,
        "fake.png": b"\0<script>",
    }
    task = shop.task(base, shop.commit(**changed))
    page = shop.get("task_diff", task)
    before, after = urls(page, "diff_image", task)
    assert "256 bytes" in plain(page).replace("\xa0", " ") and "2.0 KB" in plain(page).replace("\xa0", " ")
    for url, content in ((before, PNG), (after, PNG + b"\1")):
        image = shop.browser.get(url)
        assert image.content == content and image["Content-Type"] == "image/png"
        assert image["X-Content-Type-Options"] == "nosniff"
        assert image["Content-Security-Policy"].startswith("default-src 'none'; sandbox")
    for name in ("x.svg", "fake.png", "data.bin", "README.md"):
        assert shop.get("diff_image", task, file=name, side="new").status_code == 404


def test_a_run_has_its_own_diff(shop: Shop) -> None:
    base = shop.source.git("rev-parse", "HEAD")
    first, second = shop.commit(**{"first.txt": "1\n"}), shop.commit(**{"second.txt": "1\n"})
    task = shop.task(base, second)
    step = task.steps.first()
    assert step
    task.steps.filter(pk=step.pk).update(base_commit=base, head_commit=second)
    RunFactory.create(step=step, number=1, head_commit=first)
    RunFactory.create(step=step, number=2, head_commit=second)

    def names(**query: Any) -> set[str]:
        page = shop.get("task_diff", task, **query)
        assert "Run 2" in page.text or not query
        return set(re.findall(r'name="file" value="([^"]*)"', page.text))

    assert names(step=1) == {"first.txt", "second.txt"}
    assert (names(step=1, run=1), names(step=1, run=2)) == ({"first.txt"}, {"second.txt"})
    assert shop.get("task_diff", task, step=1, run=9).status_code == 404
    assert shop.get("task_diff", task, run=1).status_code == 404
    assert Run.objects.count() == 2


def test_the_patch_is_that_of_the_shown_diff(shop: Shop) -> None:
    base = shop.source.git("rev-parse", "HEAD")
    commits = [shop.commit(**{f"{name}.txt": "1\n"}) for name in ("first", "second", "third")]
    task = shop.task(base, commits[1])
    step = task.steps.first()
    assert step
    task.steps.filter(pk=step.pk).update(base_commit=base, head_commit=commits[1])
    for number in (1, 2):
        RunFactory.create(step=step, number=number, head_commit=commits[number - 1])
    by = Principal.unrestricted(shop.user)
    send_review(task, ReviewVerdict.COMMENT, by=by, via=Channel.WEB, body="Hm.", commit=commits[1])
    Task.objects.filter(pk=task.pk).update(head_commit=commits[2])

    def patch(**query: Any) -> tuple[str, set[str]]:
        (link,) = re.findall(
            r'href="([^"]+)" title="Download for git apply"', shop.get("task_diff", task, **query).text
        )
        answer = shop.browser.get(html.unescape(link))
        name = answer["Content-Disposition"].partition("filename=")[2].strip('"')
        return name, set(re.findall(r"^\+\+\+ b/(.*)$", text_of(answer), re.MULTILINE))

    assert patch(step=1, run=2) == (f"task-{task.pk}-step-1-run-2.patch", {"second.txt"})
    assert patch(step=1) == (f"task-{task.pk}-step-1.patch", {"first.txt", "second.txt"})
    assert patch(since=1) == (f"task-{task.pk}-since-1.patch", {"third.txt"})


def test_500_files_and_50_000_lines_cost_a_page_as_much_as_one(shop: Shop, git_processes: list[str]) -> None:
    """The first page is bounded; the other files load when they come into view, each at a bounded cost."""
    base = shop.source.git("rev-parse", "HEAD")
    small = shop.commit(**{"one.py": CODE})
    lines = "".join(f"value_{n} = {n}\n" for n in range(100))
    large = shop.commit(**{f"folder{n % 20}/file{n}.py": lines for n in range(500)})
    few, many = shop.task(base, small), shop.task(small, large)

    def cost(task: Task) -> tuple[int, int, Any]:
        git_processes.clear()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page = shop.get("task_diff", task)
        return len(queries), len(git_processes), page

    cost(few)  # what is read once
    one, all_of_them = cost(few), cost(many)
    assert all_of_them[0] == one[0] and all_of_them[1] <= 5
    page = all_of_them[2]
    assert "500 files" in page.text and "+50000" in page.text
    assert page.text.count('class="dl ') <= 1000 and len(page.content) < 1_500_000
    loading = re.findall(r'hx-get="([^"]*)" hx-trigger="intersect once"', page.text)
    assert len(loading) > 480
    git_processes.clear()
    with CaptureQueriesContext(connection) as queries:
        part = shop.browser.get(html.unescape(loading[-1]), **HTMX)
    assert part.text.count('class="dl ') == 100 and "<html" not in part.text
    assert len(queries) <= one[0] and len(git_processes) <= 6


def test_threads_on_a_file_and_on_the_whole_stand_where_they_belong(shop: Shop) -> None:
    """V3"""
    base = shop.source.git("rev-parse", "HEAD")
    task = shop.task(base, shop.commit(**{"a.txt": "1\n2\n", "b.txt": "1\n"}))

    def add(text: str, **place: object) -> Any:
        fields = {"text": text, "commit": task.head_commit, **place}
        return shop.browser.post(reverse("thread_add", args=[task.pk]), fields, **HTMX)

    assert "About the file." in add("About the file.", path="b.txt", side="new", line="").text
    assert "about the whole result" in add("About it all.", path="", side="new", line="").text
    page = shop.get("task_diff", task).text
    assert page.index("About it all.") < page.index('class="file-box"'), "above the files"
    assert page.index('value="a.txt"') < page.index("About the file.") < page.index('value="b.txt"')
    places = [(thread.path, thread.line) for thread in ReviewThread.objects.order_by("pk")]
    assert places == [("b.txt", None), ("", None)]
    assert "data-comment-file" in page and "data-comment-whole" in page


def test_what_others_write_is_reported_without_the_diff(shop: Shop) -> None:
    """V3: live for everybody who looks."""
    base = shop.source.git("rev-parse", "HEAD")
    task = shop.task(base, shop.commit(**{"a.txt": "1\n2\n"}))
    other = Principal.unrestricted(MembershipFactory.create(project=shop.project).user)
    add_to_draft(task, NewThread("Not sent.", "a.txt", line=1), by=other)
    sent = NewThread("Why 2?", "a.txt", line=2)
    send_review(task, ReviewVerdict.COMMENT, by=other, via=Channel.WEB, threads=[sent])
    part = shop.get("diff_threads", task, htmx=True)
    assert "Why 2?" in part.text and "Not sent." not in part.text
    assert f'data-head="{task.head_commit}"' in part.text
    assert re.search(r'data-file="file-[0-9a-f]{12}" data-side="new" data-line="2"', tidy(part.text))
    thread = ReviewThread.objects.get(number=1)
    assert thread.state == ThreadState.OPEN
    version = re.search(r'data-version="([^"]*)"', part.text)
    ReviewThread.objects.filter(pk=thread.pk).update(state=ThreadState.ANSWERED)
    assert version and version[0] not in shop.get("diff_threads", task, htmx=True).text


def test_a_comment_on_a_removed_line_needs_the_old_side_of_the_whole_task(shop: Shop, client: Client) -> None:
    """V3: the old lines of a step are not those of where the task began."""
    base = shop.commit(**{"a.txt": "1\n2\n3\n"})
    middle = shop.commit(**{"a.txt": "new\n1\n2\n3\n"})
    head = shop.commit(**{"a.txt": "new\n1\n3\n"})
    task = shop.task(base, head)
    task.steps.filter(position=1).update(base_commit=middle, head_commit=head)
    assert 'data-side="old" data-line="2"' in shop.get("task_diff", task).text
    step = shop.get("task_diff", task, step=1).text
    assert "dl-del" in step and 'data-side="old" data-line' not in step
