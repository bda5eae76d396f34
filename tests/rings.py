"""Which tests `make test` runs, which `make test-long`, and on which database.

`make test` protects users while one works. It shows each behaviour once: services, pages, the API and the
engine with the fake agent on SQLite; on PostgreSQL what the two databases do differently (`BOTH`); the real
agent program where the portal depends on it (conformance, approvals, some tasks from end to end); in the
browser the stories of asking, answering and following.

`make test-long` is the rest, on both databases: DISASTERS, programs of OTHERS and VARIATIONS of what
`make test` shows, and on PostgreSQL all other tests that use the database, apart from ON_SQLITE. Both
together leave no test out, and a run of `pytest` alone runs all that it is given.

A new module runs in `make test`. It belongs in one of these lists if it is about what the list says, or if
it is among the modules that use most CPU time (`cpu_time.py`, shown at the end of each run). Marks of single
tests come before the lists: `long`, `once(on=…)` for one database, `both` for both.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests import machine

TESTS = Path(__file__).parent
DATABASES = ("sqlite", "postgres")

#: What breaks, is cut off or fills up: crash points, soak, power cut, worker hosts, damaged repositories.
DISASTERS = (
    "crash/test_compaction.py",
    "crash/test_crash_of_approvals.py",
    "crash/test_crash_points.py",
    "crash/test_leftovers.py",
    "crash/test_lfs_on_hosts.py",
    "crash/test_network_of_hosts.py",
    "crash/test_power_cut.py",
    "crash/test_publishing.py",
    "crash/test_separate_hosts.py",
    "crash/test_soft_limit.py",
    "crash/test_sweep.py",
    "crash/test_tokens_on_worker_hosts.py",
    "crash/test_worker_comes_back.py",
    "crash/test_worker_hosts.py",
    "integration/test_abandoned_folders.py",
    "integration/test_broken_exchanges.py",
    "integration/test_busy_mirrors.py",
    "integration/test_damaged_sessions.py",
    "integration/test_data_directory.py",
    "integration/test_drain.py",
    "integration/test_engine_deaths.py",
    "integration/test_live_detectors.py",
    "integration/test_loading.py",
    "integration/test_lost_repository.py",
    "integration/test_queue_faults.py",
    "integration/test_recording.py",
    "integration/test_repository_damage.py",
    "integration/test_repository_limits.py",
    "integration/test_slow_exchanges.py",
    "integration/test_worker_host_start.py",
    "integration/test_worker_hosts.py",
    "integration/test_worker_labels.py",
    "integration/test_worker_without_queue.py",
    "integration/test_workspace_git.py",
    "security/test_floods.py",
    "soak/test_soak.py",
)
#: Programs of others: package managers, proxies, Git LFS, submodules, collectors of traces, pip, fuzzers.
OTHERS = (
    "integration/test_agent_spans.py",
    "integration/test_api_fuzz.py",
    "integration/test_deployment_start.py",
    "integration/test_hostile_clones.py",
    "integration/test_lfs_contents.py",
    "integration/test_lfs_of_worker_hosts.py",
    "integration/test_lfs_publishing.py",
    "integration/test_mcp_claude_code.py",
    "integration/test_package.py",
    "integration/test_private_authorities.py",
    "integration/test_reverse_proxies.py",
    "integration/test_services.py",
    "integration/test_setup_cache.py",
    "integration/test_setup_package_managers.py",
    "integration/test_submodules.py",
    "integration/test_toolchains.py",
    "integration/test_traces.py",
    "integration/test_upgrade.py",
    "security/test_open_services.py",
    "security/test_peer_identity.py",
    "security/test_submodules.py",
)
#: More of what `make test` shows once: of the browser, the real agent program, terminals and merging, and of
#: what a pipeline may switch on (plans, questions before the work, an early end).
VARIATIONS = (
    "e2e/test_accessible.py",
    "e2e/test_api_reference.py",
    "e2e/test_arrivals.py",
    "e2e/test_card_details.py",
    "e2e/test_day_of_a_lead.py",
    "e2e/test_decided_once.py",
    "e2e/test_drafts.py",
    "e2e/test_focus.py",
    "e2e/test_folds.py",
    "e2e/test_long_log.py",
    "e2e/test_look.py",
    "e2e/test_new_task.py",
    "e2e/test_own_settings.py",
    "e2e/test_push.py",
    "e2e/test_soft_limit.py",
    "e2e/test_task_lists.py",
    "e2e/test_layout.py",
    "e2e/test_workers.py",
    "integration/test_agent_answer_table.py",
    "integration/test_cited_code.py",
    "integration/test_commands_watch.py",
    "integration/test_engine_real_agent.py",
    "integration/test_finish_early.py",
    "integration/test_hidden_files.py",
    "integration/test_merging_sequences.py",
    "integration/test_metered_runs.py",
    "integration/test_moving_a_project.py",
    "integration/test_passing_events.py",
    "integration/test_plans.py",
    "integration/test_prompt_caching.py",
    "integration/test_protected_files.py",
    "integration/test_questions_before_work.py",
    "integration/test_rehearsal_cli.py",
    "integration/test_renamed_branches.py",
    "integration/test_resumption.py",
    "integration/test_reviews_outside.py",
    "integration/test_reviews_real_agent.py",
    "integration/test_undelivered_answers.py",
    "security/test_sandboxed_agent.py",
)
LONG = {*DISASTERS, *OTHERS, *VARIATIONS}
#: Claims, transitions, races, search, sums, orderings, backup, migrations: on both databases in `make test`.
BOTH = (
    "integration/test_audit.py",
    "integration/test_backup.py",
    "integration/test_database_faults.py",
    "integration/test_day_sums.py",
    "integration/test_decided_once.py",
    "integration/test_earlier_answers.py",
    "integration/test_engine_lease.py",
    "integration/test_all_tasks.py",
    "integration/test_hot_queries.py",
    "integration/test_ladders.py",
    "integration/test_query_counts.py",
    "integration/test_question_order.py",
    "integration/test_quick_search.py",
    "integration/test_races.py",
    "integration/test_scheduling.py",
    "integration/test_search.py",
    "integration/test_services_tasks.py",
    "integration/test_task_machine.py",
    "integration/test_undo.py",
    "integration/test_usage.py",
    "unit/test_migrations.py",
    "unit/test_orderings.py",
)
#: One database is enough for permissions of every URL, for what mostly happens outside of it (git, files,
#: terminals, exit codes), and for modules that send hardly a statement, beside their own looking, that no
#: other module sends. Not run on PostgreSQL.
ON_SQLITE = (
    "crash/test_publishing.py",
    "integration/test_abandoned_folders.py",
    "integration/test_access.py",
    "integration/test_activity.py",
    "integration/test_admin_audit.py",
    "integration/test_admin_audit_by_hand.py",
    "integration/test_answer_form.py",
    "integration/test_answers.py",
    "integration/test_answers_as_decisions.py",
    "integration/test_api_answers.py",
    "integration/test_api_exports.py",
    "integration/test_api_members.py",
    "integration/test_broken_exchanges.py",
    "integration/test_busy_mirrors.py",
    "integration/test_cited_code.py",
    "integration/test_commands_answer.py",
    "integration/test_commands_bad_input.py",
    "integration/test_commands_validate.py",
    "integration/test_decisions_in_the_terminal.py",
    "integration/test_doctor.py",
    "integration/test_engine_faults.py",
    "integration/test_engine_git.py",
    "integration/test_engine_stopping.py",
    "integration/test_engine_story.py",
    "integration/test_event_printer.py",
    "integration/test_events_logs.py",
    "integration/test_file_guard.py",
    "integration/test_first_steps.py",
    "integration/test_forecast.py",
    "integration/test_forges.py",
    "integration/test_git_publishing.py",
    "integration/test_hidden_files.py",
    "integration/test_hostile_clones.py",
    "integration/test_json.py",
    "integration/test_lfs_contents.py",
    "integration/test_lfs_of_worker_hosts.py",
    "integration/test_lfs_publishing.py",
    "integration/test_limits_of_runs.py",
    "integration/test_log_of_deeds.py",
    "integration/test_lost_repository.py",
    "integration/test_mcp.py",
    "integration/test_mcp_actions.py",
    "integration/test_mcp_tasks.py",
    "integration/test_merging.py",
    "integration/test_merging_sequences.py",
    "integration/test_metrics.py",
    "integration/test_moving_a_project.py",
    "integration/test_new_task.py",
    "integration/test_on_call.py",
    "integration/test_pages_sequence.py",
    "integration/test_passing_events.py",
    "integration/test_pipeline_publishing.py",
    "integration/test_plans.py",
    "integration/test_private_authorities.py",
    "integration/test_probes.py",
    "integration/test_project_settings.py",
    "integration/test_projects_pages.py",
    "integration/test_prompt_caching.py",
    "integration/test_prompts_of_steps.py",
    "integration/test_publishing_access.py",
    "integration/test_publishing_pages.py",
    "integration/test_publishing_sequences.py",
    "integration/test_pull_requests.py",
    "integration/test_question_figures.py",
    "integration/test_questions_in_lists.py",
    "integration/test_recording.py",
    "integration/test_removing.py",
    "integration/test_renamed_branches.py",
    "integration/test_repository_damage.py",
    "integration/test_repository_limits.py",
    "integration/test_resumption.py",
    "integration/test_retrying.py",
    "integration/test_reviews_real_agent.py",
    "integration/test_sequence_permissions.py",
    "integration/test_setting_descriptors.py",
    "integration/test_setup.py",
    "integration/test_setup_cache.py",
    "integration/test_setup_package_managers.py",
    "integration/test_slow_exchanges.py",
    "integration/test_soft_limit.py",
    "integration/test_soft_limit_surfaces.py",
    "integration/test_standing_decisions.py",
    "integration/test_status_words.py",
    "integration/test_step_network.py",
    "integration/test_submodules.py",
    "integration/test_task_result.py",
    "integration/test_threshold_change.py",
    "integration/test_tokens_page.py",
    "integration/test_toolchains.py",
    "integration/test_traces.py",
    "integration/test_unanswered.py",
    "integration/test_verdict_forms.py",
    "integration/test_verdicts.py",
    "integration/test_worker_abilities.py",
    "integration/test_worker_host_start.py",
    "security/test_accounts.py",
    "security/test_answers.py",
    "security/test_audit_log.py",
    "security/test_check_home.py",
    "security/test_exports.py",
    "security/test_failed_logins.py",
    "security/test_password_hashing.py",
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
_MARKS = re.compile(r"\bmark\.(?:long|once|both)\b")


def belongs(test: pytest.Item, ring: str, database: str) -> bool:
    """Return whether a ring, `test` or `long`, has this test on this database.

    Without PostgreSQL, what needs only that one runs on SQLite.
    """
    name = _name(test.path)
    needed: tuple[str, ...]
    once, both = test.get_closest_marker("once"), test.get_closest_marker("both")
    if once:
        needed = (once.kwargs["on"],) if not machine.MISSING["postgres"]() else ("sqlite",)
    elif name in ON_SQLITE and not both:
        needed = ("sqlite",)
    else:
        needed = DATABASES
    if database not in needed:
        return False
    is_long = name in LONG or test.get_closest_marker("long") is not None
    in_test = not is_long and (database == "sqlite" or name in BOTH or both is not None or bool(once))
    return in_test == (ring == "test")


@cache
def may_belong(module: Path, ring: str, database: str) -> bool:
    """Return whether a ring may have tests of this module, as far as one sees without importing it."""
    name = _name(module)
    text = module.read_text("utf-8")
    if database == "postgres" and not _ROWS.search(text):
        return False
    if _MARKS.search(text):
        return True
    if database == "postgres" and name in ON_SQLITE:
        return False
    in_test = name not in LONG and (database == "sqlite" or name in BOTH)
    return in_test == (ring == "test")


@cache
def may_use_rows(module: Path) -> bool:
    """Return whether a test of this module may use the database, as far as one sees without importing it."""
    return _ROWS.search(module.read_text("utf-8")) is not None


def begins_early(module: Path) -> bool:
    """Return whether this test module is among those with which a run begins."""
    return _name(module) in BEGUN_FIRST


@cache
def _name(module: Path) -> str:
    return module.relative_to(TESTS).as_posix() if module.is_relative_to(TESTS) else ""
