"""Which tests `make test` runs on one database only.

`make test` has two rounds at once: the tests that use the database on PostgreSQL, the whole suite on SQLite.
Models, services, the engine, the queue, live updates and everything about databases run in both rounds, and
so does each test module that is not listed here. A page, a form or a command is a thin layer over these and
needs one database. `test_query_counts` and `test_api_lists` request every page and every list on both.

The marker `once` says the same of a single test, in a module that is not listed. In one that is listed, the
marker `both` names the tests that need both databases all the same: races, leases, searches.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

#: Input from people and scripts: PostgreSQL is the stricter about NUL, numbers, lengths, and statements after
#: an error in a transaction. Worker hosts need PostgreSQL anyway.
ON_POSTGRES = (
    "integration/test_activity.py",
    "integration/test_answer_form.py",
    "integration/test_api_actions.py",
    "integration/test_api_answers.py",
    "integration/test_api_exports.py",
    "integration/test_api_members.py",
    "integration/test_api_resources.py",
    "integration/test_audit_page.py",
    "integration/test_commands_answer.py",
    "integration/test_commands_listing.py",
    "integration/test_dashboard.py",
    "integration/test_decision_export.py",
    "integration/test_verdict_forms.py",
    "integration/test_decision_import.py",
    "integration/test_decision_pages.py",
    "integration/test_diff_page.py",
    "integration/test_first_steps.py",
    "integration/test_forge_webhooks.py",
    "integration/test_history.py",
    "integration/test_hot_queries.py",
    "integration/test_inbox.py",
    "integration/test_invitations.py",
    "integration/test_json.py",
    "integration/test_login.py",
    "integration/test_me.py",
    "integration/test_members.py",
    "integration/test_new_task.py",
    "integration/test_notifications_pages.py",
    "integration/test_pages.py",
    "integration/test_pages_sequence.py",
    "integration/test_publishing.py",
    "integration/test_publishing_access.py",
    "integration/test_publishing_pages.py",
    "integration/test_publishing_sequences.py",
    "integration/test_reviews_outside.py",
    "integration/test_reviews_pages.py",
    "integration/test_sessions.py",
    "integration/test_task_log.py",
    "integration/test_task_result.py",
    "integration/test_time_zones.py",
    "integration/test_web_push.py",
    "integration/test_worker_hosts.py",
    "security/test_numbers.py",
    "security/test_web.py",
)
#: Permissions of every URL, and what mostly happens outside of the database: git, files, terminals.
ON_SQLITE = (
    "crash/test_publishing.py",
    "integration/test_access.py",
    "integration/test_admin_audit.py",
    "integration/test_admin_audit_by_hand.py",
    "integration/test_commands_bad_input.py",
    "integration/test_commands_validate.py",
    "integration/test_decisions_at_the_prompt.py",
    "integration/test_doctor.py",
    "integration/test_engine_git.py",
    "integration/test_file_guard.py",
    "integration/test_forges.py",
    "integration/test_git_publishing.py",
    "integration/test_lfs_contents.py",
    "integration/test_lfs_publishing.py",
    "integration/test_lost_repository.py",
    "integration/test_merging.py",
    "integration/test_merging_sequences.py",
    "integration/test_moving_a_project.py",
    "integration/test_pipeline_publishing.py",
    "integration/test_plans.py",
    "integration/test_probes.py",
    "integration/test_project_settings.py",
    "integration/test_projects_pages.py",
    "integration/test_prompts_of_steps.py",
    "integration/test_pull_requests.py",
    "integration/test_recording.py",
    "integration/test_reviews_real_agent.py",
    "integration/test_setting_descriptors.py",
    "integration/test_setup.py",
    "integration/test_setup_cache.py",
    "integration/test_setup_package_managers.py",
    "integration/test_step_network.py",
    "integration/test_submodules.py",
    "integration/test_tokens_page.py",
    "integration/test_toolchains.py",
    "integration/test_traces.py",
    "integration/test_worker_host_start.py",
    "security/test_accounts.py",
    "security/test_audit_log.py",
    "security/test_check_home.py",
    "security/test_exports.py",
    "security/test_permissions.py",
    "security/test_publishing.py",
    "security/test_texts.py",
    "security/test_tokens.py",
)

#: A test that takes a minute must not be the last one that begins: all workers but its own would wait for it.
BEGUN_FIRST = (
    "soak/test_soak.py",
    "integration/test_package.py",
    "integration/test_backup.py",
)

#: The mark of tests that use the database, and the fixtures that most of the others get it from.
_ROWS = re.compile(r"\b(?:django_db|transactional_db|runner)\b")

_BOTH = re.compile(r"\bpytest\.mark\.both\b")

_ROUNDS = dict.fromkeys(ON_POSTGRES, "postgres") | dict.fromkeys(ON_SQLITE, "sqlite")


def only_round(module: Path) -> str | None:
    """Return the database that is enough for this test module, or None if it needs both."""
    if not module.is_relative_to(TESTS):
        return None
    return _ROUNDS.get(module.relative_to(TESTS).as_posix())


def is_long(module: Path) -> bool:
    """Return whether this test module is among those with which a run begins."""
    return module.is_relative_to(TESTS) and module.relative_to(TESTS).as_posix() in BEGUN_FIRST


def round_of(test: pytest.Item) -> str | None:
    """Return the database that is enough for this test, or None if it needs both."""
    if test.get_closest_marker("both"):
        return None
    once = test.get_closest_marker("once")
    return once.kwargs["on"] if once else only_round(test.path)


@cache
def has_tests_for_both(module: Path) -> bool:
    """Return whether tests of a listed module are marked as `both`."""
    return _BOTH.search(module.read_text("utf-8")) is not None


@cache
def may_use_rows(module: Path) -> bool:
    """Return whether a test of this module may use the database, as far as one sees without importing it."""
    return only_round(module) == "postgres" or _ROWS.search(module.read_text("utf-8")) is not None
