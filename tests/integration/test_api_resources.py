"""What the pages of usage, audit, notices, tokens and a project's settings do, the API does too (W5)."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.history.audit import ActionOrigin, acting_from, record
from tasks_app.models import (
    Action,
    ApiToken,
    AuditEntry,
    Channel,
    Delivery,
    Membership,
    Notice,
    Project,
    Question,
    Role,
    Run,
    Scope,
    Target,
    Task,
    Transition,
    User,
)
from tasks_app.services.projects.projects import add_project, fetch
from tests.addresses import text_of
from tests.api import PROBLEM, Script
from tests.factories import MembershipFactory, ProjectFactory, QuestionFactory, TaskFactory, UserFactory
from tests.integration.git_repository import GitRepository
from tests.runner import ONE_STEP

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann() -> User:
    return UserFactory.create(username="ann")


@pytest.fixture
def root() -> Script:
    return Script(UserFactory.create(username="root", is_superuser=True))


def refused(answer: Any, status: int, where: str = "") -> None:
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM), answer.content
    assert not where or [one["where"] for one in answer.json()["errors"]] == [where]


class TestUsage:
    @pytest.fixture
    def shop(self, ann: User) -> Project:
        """Two runs, three days apart, of which the first was asked a question that ann answered."""
        project: Project = MembershipFactory.create(user=ann, project__name="shop").project
        for day, dollars, model in ((1, 0.25, "opus"), (4, 0.5, "haiku")):
            run = QuestionFactory.create(task__project=project, task__created_by=ann).run
            facts = {"started_at": datetime(2026, 3, day, 12, tzinfo=UTC), "cost_usd": dollars}
            Run.objects.filter(pk=run.pk).update(model=model, output_tokens=10, **facts)
        asked = datetime(2026, 3, 1, 12, tzinfo=UTC)
        Question.objects.update(asked_at=asked)
        first = Question.objects.filter(pk=Question.objects.earliest("pk").pk)
        first.update(state="answered", answered_at=asked.replace(minute=5))
        return project

    def test_usage_is_summed_and_split(self, ann: User, shop: Project) -> None:
        said = Script(ann).get("/usage", **{"from": "2026-03-01", "to": "2026-03-31", "by": "person"}).json()
        assert (said["since"], said["until"], said["cost_usd"]) == ("2026-03-01", "2026-03-31", 0.75)
        assert said["tokens"]["output"] == 20 and said["before"]["cost_usd"] == 0
        assert [(one["name"], one["cost_usd"]) for one in said["models"]] == [("haiku", 0.5), ("opus", 0.25)]
        assert [one["name"] for one in said["projects"]] == ["shop"]
        assert [(one["day"], one["name"]) for one in said["days"]] == [
            ("2026-03-01", "ann"),
            ("2026-03-04", "ann"),
        ]
        waited = said["waited"]
        assert (waited["questions"], waited["answered"], waited["median_seconds"]) == (2, 1, 300.0)

    def test_what_one_does_not_see_is_not_in_it(self, shop: Project) -> None:
        asked = {"from": "2026-03-01", "to": "2026-03-31"}
        for script in (
            Script(UserFactory.create()),
            Script(UserFactory.create(is_superuser=True), projects=[ProjectFactory.create()]),
        ):
            said = script.get("/usage", **asked).json()
            assert (said["cost_usd"], said["models"], said["waited"]["questions"]) == (0, [], 0)

    @pytest.mark.parametrize(
        ("asked", "where"),
        [
            ({"from": "2026-03-02", "to": "2026-03-01"}, "query.from"),
            ({"from": "1990-01-01", "to": "2026-03-01"}, "query.from"),
            ({"from": "tomorrow"}, "query.from"),
            ({"by": "colour"}, "query.by"),
        ],
    )
    def test_an_impossible_period_is_reported(self, ann: User, asked: dict[str, str], where: str) -> None:
        refused(Script(ann).get("/usage", **asked), 400, where)


class TestAudit:
    def test_a_site_admin_finds_who_did_what(self, root: Script, ann: User) -> None:
        task = TaskFactory.create(project__name="shop")
        record(Action.TASK_CANCELLED, by=ann, task=task)
        record(Action.LOGGED_OUT, by=ann)
        for asked in ({"project": "shop"}, {"person": "ann", "action": "task_cancelled"}, {"task": task.pk}):
            (entry,) = root.get("/audit", **asked).json()["items"]
            assert (entry["actor"], entry["action"], entry["project"]) == ("ann", "task_cancelled", "shop")
            assert entry["task"] == task.pk
        assert len(root.get("/audit", person="ann").json()["items"]) == 2
        today = AuditEntry.objects.earliest("pk").at.date().isoformat()
        assert len(root.get("/audit", person="ann", **{"from": today, "to": today}).json()["items"]) == 2
        assert root.get("/audit", person="ann", to="2020-01-01").json()["items"] == []

    def test_it_is_searched_and_narrowed_as_in_the_audit_log(self, root: Script, ann: User) -> None:
        with acting_from(ActionOrigin(via=Channel.TERMINAL, ip_address="192.0.2.7")):
            record(Action.TASK_CANCELLED, by=ann, task=TaskFactory.create(title="Round prices"))
        record(Action.LOGGED_OUT, by=ann)
        for asked in ({"via": "terminal"}, {"q": "192.0.2"}, {"q": "ann PRICES"}):
            (entry,) = root.get("/audit", **asked).json()["items"]
            assert (entry["action"], entry["via"]) == ("task_cancelled", "terminal")
        assert root.get("/audit", q="prices logged").json()["items"] == []
        refused(root.get("/audit", via="pigeon"), 400, "query.via")

    def test_the_export_has_the_same_filters(self, root: Script, ann: User) -> None:
        record(Action.TASK_CANCELLED, by=ann, task=TaskFactory.create(title="=1+1"))
        record(Action.LOGGED_OUT, by=UserFactory.create(username="ben"))
        only = root.get("/audit/export", person="ann")
        (row,) = json.loads(text_of(only))
        assert only["Content-Type"] == "application/json; charset=utf-8"
        assert row == root.get("/audit", person="ann").json()["items"][0]
        (row,) = csv.DictReader(StringIO(text_of(root.get("/audit/export", person="ann", format="csv"))))
        assert (row["actor"], row["subject"]) == ("ann", "'=1+1")
        told = AuditEntry.objects.filter(action=Action.EXPORTED).latest("pk")
        assert (told.subject, told.via) == ("audit entries", "api")
        assert told.detail == {"form": "csv", "filters": {"person": ["ann"], "format": ["csv"]}}

    @pytest.mark.parametrize("place", ["/audit", "/audit/export"])
    def test_maintainers_read_what_the_page_shows_them(self, ann: User, place: str) -> None:
        shop: Project = ProjectFactory.create(name="shop")
        record(Action.TASK_CANCELLED, by=ann, task=TaskFactory.create(project=shop, title="Round prices"))
        record(Action.TASK_CANCELLED, by=ann, task=TaskFactory.create(title="Move the money"))
        MembershipFactory.create(user=ann, project=shop, role=Role.MAINTAINER)
        viewer = MembershipFactory.create(project=shop, role=Role.VIEWER).user
        admin = UserFactory.create(is_superuser=True)
        elsewhere = MembershipFactory.create(user=ann, role=Role.MAINTAINER).project
        for user, projects, sees in (
            (ann, None, {"Round prices"}),
            (ann, [elsewhere], set()),
            (viewer, None, set()),
            (admin, None, {"Round prices", "Move the money"}),
            (admin, [shop], {"Round prices"}),
        ):
            shown = text_of(Script(user, projects=projects).get(place, action="task_cancelled"))
            assert {title for title in ("Round prices", "Move the money") if title in shown} == sees
            ApiToken.objects.all().delete()
        refused(Script(admin, Scope.READ, Scope.WRITE).get(place), 403)

    def test_a_person_is_found_as_on_the_page(self, root: Script, ann: User) -> None:
        record(Action.LOGGED_OUT, by=UserFactory.create(username="ben", first_name="Benedict"))
        for person in ("BEN", "bened"):
            (entry,) = root.get("/audit", person=person, action="logged_out").json()["items"]
            assert entry["actor"] == "Benedict"


class TestNotices:
    def told(self, user: User, task: Task, event_type: str = "failed") -> Notice:
        move = Transition.objects.create(task=task, source="running", target="failed")
        return Notice.objects.create(
            user=user, task=task, transition=move, event_type=event_type, headline="It broke"
        )

    def test_ones_own_are_listed_and_read(self, ann: User) -> None:
        project = MembershipFactory.create(user=ann, project__name="shop").project
        task = TaskFactory.create(project=project, title="Round it")
        first, second = self.told(ann, task), self.told(ann, task)
        others = self.told(UserFactory.create(), task)
        script = Script(ann)
        listed = script.get("/me/notices").json()["items"]
        assert [one["id"] for one in listed] == [second.pk, first.pk]
        assert (listed[0]["headline"], listed[0]["title"], listed[0]["unread"]) == (
            "It broke",
            "Round it",
            True,
        )
        assert script.post("/me/notices/read", {"notice": first.pk}).json() == {"read": 1}
        assert script.post("/me/notices/read", {"notice": others.pk}).json() == {"read": 0}
        assert [one["id"] for one in script.get("/me/notices", unread=True).json()["items"]] == [second.pk]
        assert script.post("/me/notices/read", {}).json() == {"read": 1}
        others.refresh_from_db()
        assert others.read_at is None

    def test_those_of_projects_that_one_sees_no_more_are_not_there(self, ann: User) -> None:
        project = MembershipFactory.create(user=ann).project
        notice = self.told(ann, TaskFactory.create(project=project))
        narrow = Script(ann, projects=[ProjectFactory.create()])
        assert narrow.get("/me/notices").json()["items"] == []
        assert narrow.post("/me/notices/read", {}).json() == {"read": 0}
        Membership.objects.all().delete()
        narrow.token.delete()
        assert Script(ann).get("/me/notices").json()["items"] == []
        notice.refresh_from_db()
        assert notice.read_at is None


class TestTokens:
    def test_ones_own_are_listed_and_revoked(self, ann: User) -> None:
        script = Script(ann)
        (listed,) = script.get("/me/tokens").json()["items"]
        assert (listed["id"], listed["name"], listed["projects"]) == (script.token.pk, "script", None)
        assert "digest" not in listed and "cath_" not in str(listed)
        other = Script(UserFactory.create())
        refused(script.send("delete", f"/me/tokens/{other.token.pk}"), 404)
        assert script.send("delete", f"/me/tokens/{listed['id']}").status_code == 204
        assert script.get("/me").status_code == 401 and other.get("/me").status_code == 200
        assert AuditEntry.objects.get(action=Action.TOKEN_REVOKED).via == "api"

    def test_a_restricted_one_sees_and_revokes_itself_alone(self, ann: User) -> None:
        project = MembershipFactory.create(user=ann, project__name="shop").project
        wide = Script(ann)
        ApiToken.objects.update(name="wide")
        narrow = Script(ann, projects=[project])
        (listed,) = narrow.get("/me/tokens").json()["items"]
        assert (listed["name"], listed["projects"]) == ("script", ["shop"])
        refused(narrow.send("delete", f"/me/tokens/{wide.token.pk}"), 404)
        assert narrow.send("delete", f"/me/tokens/{narrow.token.pk}").status_code == 204
        assert wide.get("/me").status_code == 200


class TestProjects:
    @pytest.fixture
    def source(self, tmp_path: Path, settings: Any) -> GitRepository:
        settings.DATA_DIR = tmp_path / "data"
        return GitRepository.make(tmp_path / "source", **{"cat-herder.yaml": ONE_STEP})

    @pytest.fixture
    def maintainer(self, source: GitRepository, ann: User) -> Script:
        project = add_project("shop", str(source.path))
        fetch(project)
        return Script(MembershipFactory.create(project=project, user=ann, role=Role.MAINTAINER).user)

    def test_every_setting_of_the_page_is_changed(self, maintainer: Script) -> None:
        wanted = {
            "manage_git_branch": False,
            "max_turns": 40,
            "max_cost_usd": 2.5,
            "step_timeout": 900,
            "check_timeout": 60,
            "ask_before": "Bash(git push*)",
            "network": "model",
        }
        answer = maintainer.send("patch", "/projects/shop/settings", wanted)
        assert answer.status_code == 200 and wanted.items() <= answer.json().items(), answer.content
        overrides = Project.objects.get().overrides
        assert wanted.items() <= overrides.items()
        reset = maintainer.send("patch", "/projects/shop/settings", {"max_turns": None, "ask_before": ""})
        assert (reset.json()["max_turns"], reset.json()["max_cost_usd"]) == (None, 2.5)

    @pytest.mark.parametrize(
        "given",
        [
            {"max_turns": 0},
            {"max_turns": "7"},
            {"max_cost_usd": -1},
            {"step_timeout": 8 * 24 * 3600},
            {"ask_before": "git push"},
            {"network": "some"},
            {"ask_before": "a\x00"},
        ],
    )
    def test_a_setting_that_cannot_be_changes_nothing(self, maintainer: Script, given: Any) -> None:
        refused(maintainer.send("patch", "/projects/shop/settings", given), 400)
        assert not AuditEntry.objects.filter(action=Action.SETTINGS_CHANGED).exists()

    @pytest.mark.django_db(transaction=True)  # a fetch is a thread of its own
    def test_tasks_start_from_another_branch(self, maintainer: Script, source: GitRepository) -> None:
        refused(maintainer.send("patch", "/projects/shop", {"branch": "release"}), 409)
        source.git("branch", "release")
        answer = maintainer.post("/projects/shop/fetch")
        assert (answer.json()["fetch_fault"], answer.json()["fetching"]) == ("", False), answer.content
        assert maintainer.send("patch", "/projects/shop", {"branch": "release"}).json()["branch"] == "release"

    @pytest.mark.django_db(transaction=True)
    def test_problems_at_the_newest_commit_are_reported(
        self, maintainer: Script, source: GitRepository
    ) -> None:
        source.commit(**{"cat-herder.yaml": f"interactionThreshold: 9\n{ONE_STEP}"})
        maintainer.post("/projects/shop/fetch")
        said = maintainer.get("/projects/shop/validation").json()
        assert said["ok"] is False and said["commit"] == source.git("rev-parse", "HEAD").strip()
        fault = said["errors"][0]
        assert (fault["file"], fault["line"], fault["key"]) == ("cat-herder.yaml", 1, "interactionThreshold")

    def test_it_is_removed_by_who_maintains_it(self, maintainer: Script) -> None:
        assert maintainer.send("delete", "/projects/shop").status_code == 204
        assert not Project.objects.exists()
        assert AuditEntry.objects.get(action=Action.PROJECT_REMOVED).via == "api"
        refused(maintainer.send("delete", "/projects/shop"), 404)


class TestTellingPeople:
    HOOK = {
        "medium": "webhook",
        "name": "hook",
        "url": "https://example.org/secret-path",
        "event_types": ["failed"],
    }

    @pytest.fixture
    def maintainer(self, ann: User) -> Script:
        return Script(MembershipFactory.create(user=ann, project__name="shop", role=Role.MAINTAINER).user)

    def test_a_webhook_is_added_changed_tried_and_removed(self, maintainer: Script) -> None:
        made = maintainer.post("/projects/shop/targets", self.HOOK).json()
        assert len(made["secret"]) > 30 and "secret-path" not in made["shown"]
        at = f"/projects/shop/targets/{made['id']}"
        (listed,) = maintainer.get("/projects/shop/targets").json()["items"]
        assert listed == {name: value for name, value in made.items() if name != "secret"}
        tried = maintainer.post(f"{at}/test").json()
        assert (tried["event_type"], tried["state"], tried["target"]) == ("test", "waiting", made["id"])
        assert [one["id"] for one in maintainer.get("/projects/shop/deliveries").json()["items"]] == [
            tried["id"]
        ]
        changed = {"name": "nightly", "event_types": ["done", "question"], "active": False}
        assert maintainer.send("put", at, changed).json()["event_types"] == ["question", "done"]
        refused(maintainer.post(f"{at}/test"), 400)
        assert maintainer.send("delete", at).status_code == 204
        assert maintainer.get("/projects/shop/targets").json()["items"] == []
        told = AuditEntry.objects.filter(action=Action.NOTIFICATIONS_CHANGED, via="api")
        assert told.count() == 3 and "secret-path" not in str([one.detail for one in told])

    def test_a_delivery_that_was_given_up_is_sent_again(self, maintainer: Script) -> None:
        target = Target.objects.create(project=Project.objects.get(), medium="webhook", name="hook")
        given_up = Delivery.objects.create(
            event_type="failed",
            target=target,
            medium="webhook",
            state="failed",
            attempts=9,
            due_at=timezone.now(),
            error="no route",
        )
        at = f"/projects/shop/deliveries/{given_up.pk}/again"
        assert maintainer.post(at).json()["state"] == "waiting"
        Delivery.objects.update(state="sent")
        refused(maintainer.post(at), 400)

    @pytest.mark.parametrize(
        "given",
        [
            {"url": "ftp://example.org/"},
            {"medium": "chat", "url": "file:///etc/passwd"},
            {"name": "  "},
            {"event_types": []},
            {"event_types": ["test"]},
        ],
    )
    def test_invalid_targets_are_not_added(self, maintainer: Script, given: dict[str, Any]) -> None:
        refused(maintainer.post("/projects/shop/targets", {**self.HOOK, **given}), 400)
        assert not Target.objects.exists()

    def test_preferences_can_be_changed_in_parts(self, maintainer: Script) -> None:
        before = maintainer.get("/me/preferences").json()
        assert before["subscriptions"]["question"] == {"page": "mine", "email": "mine", "chat": "mine"}
        wanted = {
            "subscriptions": {"done": {"email": "all"}},
            "project_selection": "chosen",
            "projects": ["shop"],
        }
        after = maintainer.send("patch", "/me/preferences", wanted).json()
        assert after["subscriptions"]["done"] == {**before["subscriptions"]["done"], "email": "all"}
        assert after["subscriptions"]["question"] == before["subscriptions"]["question"]
        assert (after["project_selection"], after["projects"]) == ("chosen", ["shop"])
        quiet = {"quiet_from": "22:00", "quiet_until": "07:30", "time_zone": "Europe/Berlin"}
        later = maintainer.send("patch", "/me/preferences", quiet).json()
        assert {**after, **quiet} == later == maintainer.get("/me/preferences").json()

    @pytest.mark.parametrize(
        ("given", "where"),
        [
            ({"projects": ["hidden"]}, "body.projects"),
            ({"time_zone": "Mars/Olympus"}, "body.time_zone"),
            ({"quiet_from": "22:00"}, "body.quiet_until"),
            ({"digest": "daily"}, "body.digest_at"),
            ({"quiet_from": "25:00"}, "body.quiet_from"),
        ],
    )
    def test_invalid_preferences_are_refused(self, maintainer: Script, given: Any, where: str) -> None:
        ProjectFactory.create(name="hidden")
        before = maintainer.get("/me/preferences").json()
        refused(maintainer.send("patch", "/me/preferences", given), 400, where)
        assert maintainer.get("/me/preferences").json() == before
