"""P5: checks run in order, in the sandbox, in the workspace as the agent left it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tasks_app.engine.checks import Check, CheckReport, FileExists, NoCheck, Shell, run_checks
from tasks_app.sandbox import Sandbox, SandboxMode, detect
from tests.integration.fifo import Fifo


@dataclass(frozen=True)
class Bench:
    workspace: Path
    home: Path
    sandbox: Sandbox

    def reports(self, *checks: Check, **more: Any) -> tuple[CheckReport, ...]:
        return run_checks(checks, workspace=self.workspace, sandbox=self.sandbox, home=self.home, **more)

    def report(self, check: Check, **more: Any) -> CheckReport:
        (report,) = self.reports(check, **more)
        return report


@pytest.fixture(params=["open", pytest.param("sandboxed", marks=pytest.mark.bubblewrap)])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    sandbox = detect(SandboxMode.AUTO) if request.param == "sandboxed" else Sandbox(None, "for this test")
    if request.param == "sandboxed" and not sandbox.active:
        pytest.skip(sandbox.reason)
    for name in ("workspace", "home"):
        (tmp_path / name).mkdir()
    return Bench(tmp_path / "workspace", tmp_path / "home", sandbox)


def test_no_check_passes(bench: Bench) -> None:
    assert bench.report(NoCheck()) == CheckReport(True, "none")


def test_without_checks_there_is_no_report(bench: Bench) -> None:
    assert bench.reports() == ()


def test_a_command_that_succeeds_passes(bench: Bench) -> None:
    assert bench.report(Shell("pwd")) == CheckReport(True, "pwd", f"{bench.workspace}\n", 0)


def test_a_command_that_fails_is_reported_with_its_output_and_code(bench: Bench) -> None:
    report = bench.report(Shell("echo 1 failed; exit 3"))
    problem = "`echo 1 failed; exit 3` failed with exit 3."
    assert report == CheckReport(False, "echo 1 failed; exit 3", "1 failed\n", 3, problem=problem)


def test_a_command_may_be_expected_to_fail(bench: Bench) -> None:
    report = bench.report(Shell("echo red; exit 1", expect="fail"))
    assert report == CheckReport(True, "echo red; exit 1 (expected to fail)", "red\n", 1)


def test_a_success_where_failure_is_expected_fails_and_says_so(bench: Bench) -> None:
    report = bench.report(Shell("echo green", expect="fail"))
    assert not report.passed and report.exit_code == 0
    assert (report.output, report.problem) == ("green\n", "`echo green` passed, but was expected to fail.")


@pytest.mark.parametrize("expect", ["pass", "fail"])
def test_a_missing_program_fails_either_way(bench: Bench, expect: Any) -> None:
    report = bench.report(Shell("no-such-program", expect=expect))
    assert not report.passed and report.exit_code == 127 and "no-such-program" in report.output
    told = "could not be run (exit 127)" if expect == "fail" else "failed with exit 127."
    assert report.problem.startswith(f"`no-such-program` {told}")


@pytest.mark.parametrize("expect", ["pass", "fail"])
def test_a_command_over_its_time_fails_either_way_and_leaves_nothing(bench: Bench, expect: Any) -> None:
    fifo = Fifo(bench.workspace / "alive")
    report = bench.report(
        Shell("exec 3>alive; echo begun; sleep 1000 & sleep 1000", expect=expect, timeout=2)
    )
    assert (report.passed, report.timed_out, report.exit_code) == (False, True, None)
    assert report.output == "begun\n" and report.problem.endswith("did not end within 2 seconds.")
    fifo.wait_for_end()


def test_a_hanging_grandchild_does_not_hold_up_the_check_and_is_ended(bench: Bench) -> None:
    fifo = Fifo(bench.workspace / "alive")
    assert bench.report(Shell("exec 3>alive; sleep 1000 & echo done")).output == "done\n"
    fifo.wait_for_end()


def test_a_stopped_task_ends_its_check(bench: Bench) -> None:
    wanted = threading.Event()
    wanted.set()
    report = bench.report(Shell("sleep 1000"), stop=wanted.is_set)
    assert not report.passed and "stopped" in report.problem


@pytest.mark.parametrize(
    ("command", "shown"),
    [("false `date`", "“false `date`”"), ("exit 1 # " + "x" * 500, f"`exit 1 # {'x' * 151}…`")],
)
def test_a_command_stays_readable_within_the_sentence(bench: Bench, command: str, shown: str) -> None:
    assert bench.report(Shell(command)).problem == f"{shown} failed with exit 1."


def test_checks_run_in_order_and_stop_at_the_first_failure(bench: Bench) -> None:
    reports = bench.reports(
        Shell("echo 1 >> log"), FileExists("log"), Shell("echo 2 >> log; false"), Shell("echo 3 >> log")
    )
    assert [report.passed for report in reports] == [True, True, False]
    assert (bench.workspace / "log").read_text() == "1\n2\n"


def test_long_output_keeps_its_end(bench: Bench) -> None:
    report = bench.report(Shell("seq 1 100000; false"))
    assert len(report.output) < 110_000 and "bytes of output are cut" in report.output
    assert report.output.endswith("\n100000\n")


def test_a_command_is_given_to_the_shell_to_the_letter(bench: Bench) -> None:
    report = bench.report(Shell('x="a\'b"\nif [[ $x == a* ]]; then echo "$x" \'☃\' "$0"; fi'))
    assert report.output == "a'b ☃ bash\n"
    assert report.check.count("\n") == 0


def test_a_command_gets_what_it_is_given_and_not_the_portals_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "very-secret")
    output = bench.report(Shell("env"), env={"GIVEN": "yes"}).output
    assert "GIVEN=yes" in output and "very-secret" not in output


@pytest.mark.parametrize("bench", [pytest.param("sandboxed", marks=pytest.mark.bubblewrap)], indirect=True)
def test_a_check_sees_no_more_than_the_agent(bench: Bench) -> None:
    (bench.workspace.parent / "secret").write_text("very-secret")
    report = bench.report(Shell("cat ../secret; touch ../escaped /usr/escaped"))
    assert not report.passed and "very-secret" not in report.output
    assert not (bench.workspace.parent / "escaped").exists()


def test_a_file_or_folder_that_is_there_passes(bench: Bench) -> None:
    (bench.workspace / "docs").mkdir()
    (bench.workspace / "docs" / "ä b.md").touch()
    assert all(report.passed for report in bench.reports(FileExists("docs"), FileExists("docs/ä b.md")))


def test_a_file_that_is_not_there_fails_by_name(bench: Bench) -> None:
    report = bench.report(FileExists("PLAN.md"))
    assert report == CheckReport(
        False, "PLAN.md exists", problem="`PLAN.md` does not exist in the workspace."
    )


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "docs/../../secret", "docs/.."])
def test_a_path_out_of_the_workspace_fails(bench: Bench, path: str) -> None:
    (bench.workspace / "docs").mkdir()
    (bench.workspace.parent / "secret").touch()
    report = bench.report(FileExists(path))
    assert not report.passed and "not a path inside the workspace" in report.problem


@pytest.mark.parametrize("path", ["link", "folder/secret"])
def test_a_link_out_of_the_workspace_fails(bench: Bench, path: str) -> None:
    (bench.workspace.parent / "secret").touch()
    (bench.workspace / "link").symlink_to("../secret")
    (bench.workspace / "folder").symlink_to(bench.workspace.parent)
    report = bench.report(FileExists(path))
    assert not report.passed and "leads out of the workspace" in report.problem


def test_a_link_within_the_workspace_passes(bench: Bench) -> None:
    (bench.workspace / "a").touch()
    (bench.workspace / "b").symlink_to("a")
    assert bench.report(FileExists("b")).passed


@pytest.mark.parametrize("path", ["", "a\0b", "circle", "x" * 5000])
def test_a_path_that_cannot_be_looked_at_fails(bench: Bench, path: str) -> None:
    (bench.workspace / "circle").symlink_to("circle")
    report = bench.report(FileExists(path))
    assert not report.passed and report.problem


@pytest.mark.parametrize("expect", ["pass", "fail"])
def test_a_command_that_somebody_kills_is_run_again(bench: Bench, expect: Any) -> None:
    """A kill says nothing of the work, whether a success or a failure was expected."""
    code = 0 if expect == "pass" else 1
    command = f"test -e killed && exit {code}; touch killed; kill -9 $$"
    report = bench.report(Shell(command, expect=expect))
    assert report.passed and report.exit_code == code


@pytest.mark.parametrize("expect", ["pass", "fail"])
def test_a_command_that_is_killed_each_time_fails(bench: Bench, expect: Any) -> None:
    report = bench.report(Shell("echo once >> times; kill -9 $$", expect=expect))
    assert not report.passed and "was killed (exit 137, SIGKILL) 3 times in a row." in report.problem
    assert (bench.workspace / "times").read_text() == "once\n" * 3
