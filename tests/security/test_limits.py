"""M7: no agent and no check takes the machine from the portal. What holds each limit is said."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TypedDict

import pytest

from tasks_app import composition
from tasks_app.core.errors import TemporaryFault
from tasks_app.engine.checks import Shell, run_checks
from tasks_app.operations import local_sandbox
from tasks_app.sandbox import Limits, Sandbox, SandboxMode, detect, run
from tasks_app.sandbox.limits import (
    SESSION_NICE,
    autogroups_enabled,
    make_cgroup,
    prepare_cgroup,
    usable_cgroup,
)
from tasks_app.sandbox.watch import Watch, exact_usage_of, size_of_folder, usage_of

MIB = 1024**2


@pytest.fixture(params=[pytest.param("sandbox", marks=pytest.mark.bubblewrap), "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return detect(SandboxMode.REQUIRE if request.param == "sandbox" else SandboxMode.OFF)


class Folders(TypedDict):
    """What a sandboxed command may write."""

    workspace: Path
    home: Path


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(workspace=tmp_path / "workspace", home=tmp_path / "home")
    made["workspace"].mkdir()
    made["home"].mkdir()
    return made


def _forget() -> None:
    composition.worker_sandbox.cache_clear()
    local_sandbox.sandbox.cache_clear()


def test_the_portal_holds_agents_and_checks_to_the_limits_that_were_set(settings: Any) -> None:
    """All of them, in the sandbox that the worker uses."""
    wanted = {"agent_memory": 1, "agent_processes": 2, "agent_disk": 3, "agent_tmp": 4, "keep_free_disk": 5,
              "agent_cpus": 6.5}  # fmt: skip
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=wanted)
    _forget()
    try:
        assert (
            composition.worker_sandbox().limits
            == local_sandbox.sandbox().limits
            == Limits(memory=1, processes=2, disk=3, tmp=4, free_disk=5, cpus=6.5)
        )
    finally:
        _forget()


def _report(sandbox: Sandbox, limits: Limits, command: str, folders: Folders) -> str:
    (report,) = run_checks(
        [Shell(command, timeout=60)], sandbox=sandbox.with_limits(limits, cgroup=None), **folders
    )
    assert not report.passed and not report.timed_out
    return report.problem


def test_a_check_that_exceeds_its_memory_is_ended_and_reported_with_the_reason(
    sandbox: Sandbox, folders: Folders
) -> None:
    """Spread over several processes, as no rlimit would see it."""
    holding = "x = bytearray(60 << 20); x[::4096] = b'1' * len(x[::4096])"
    hog = f'python3 -c "import time; {holding}; time.sleep(60)"'
    problem = _report(sandbox, Limits(memory=150 * MIB), f"for i in 1 2 3 4; do {hog} & done; wait", folders)
    assert "of memory in" in problem and "more than the 150 MiB" in problem
    assert "CATHERDER_AGENT_MEMORY" in problem


def test_a_check_that_starts_too_many_processes_is_ended(sandbox: Sandbox, folders: Folders) -> None:
    problem = _report(sandbox, Limits(processes=40), "for i in $(seq 200); do sleep 60 & done; wait", folders)
    assert "more than the 40 that" in problem and "CATHERDER_AGENT_PROCESSES" in problem


def test_no_file_grows_past_the_limit(sandbox: Sandbox, folders: Folders) -> None:
    limited = sandbox.with_limits(Limits(disk=MIB), cgroup=None)
    command = limited.command(["sh", "-c", "head -c 5000000 /dev/zero >big; echo $?"], env={}, **folders)
    assert run(command, timeout=30).exit_code is not None
    assert (folders["workspace"] / "big").stat().st_size == MIB


def test_files_that_together_are_too_large_end_a_check(
    sandbox: Sandbox, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks_app.sandbox.watch.FOLDER_SECONDS", 0.0)
    many = "for i in $(seq 8); do head -c 900000 /dev/zero >f$i; done; sleep 60"
    problem = _report(sandbox, Limits(disk=MIB), many, folders)
    assert "more than the 1 MiB" in problem and "CATHERDER_AGENT_DISK" in problem


def test_a_full_disk_is_nobodys_failed_attempt(folders: Folders) -> None:
    watch = Watch(Limits(free_disk=10**18), os.getpid(), folders=[folders["workspace"], folders["home"]])
    with pytest.raises(TemporaryFault, match="CATHERDER_KEEP_FREE_DISK"):
        watch.problem()


@pytest.mark.bubblewrap
def test_temporary_folders_are_bounded(folders: Folders) -> None:
    sandbox = detect(SandboxMode.REQUIRE).with_limits(Limits(tmp=2 * MIB), cgroup=None)
    if not sandbox.limits_tmp:
        assert {held.name: held.by for held in sandbox.enforced_limits}["Temporary files"] == ""
        return
    command = sandbox.command(
        ["sh", "-c", "head -c 9000000 /dev/zero >/tmp/big; stat -c %s /tmp/big"], env={}, **folders
    )
    assert run(command, timeout=30).output.endswith(f"{2 * MIB}\n")


HELD = 40 * MIB
SHARED_MEMORY = {
    "mapped": "m = mmap.mmap(-1, size)\nfor at in range(0, size, 4096): m[at] = 1",
    "in a file without a name": "f = os.memfd_create('x')\nos.write(f, b'x' * size)",
}


@pytest.mark.parametrize("how", SHARED_MEMORY.values(), ids=SHARED_MEMORY)
def test_shared_memory_counts(sandbox: Sandbox, folders: Folders, how: str) -> None:
    (folders["workspace"] / "take.py").write_text(
        f"import mmap, os, time\nsize = {HELD}\n{how}\ntime.sleep(60)\n"
    )
    assert "of memory in" in _report(sandbox, Limits(memory=HELD // 2), "python3 take.py", folders)


def test_memory_that_processes_share_counts_once(folders: Folders) -> None:
    """Else every server that forks would seem to use a multiple of what it does."""
    script = f"""
import mmap, os, time
shared = mmap.mmap(-1, {HELD})
own = bytearray(b"x" * {HELD})
for at in range(0, {HELD}, 4096): shared[at] = 1
for _ in range(5):
    if os.fork() == 0:
        sum(shared[at] + own[at] for at in range(0, {HELD}, 4096))
        print(flush=True)
        time.sleep(60)
for _ in range(5): os.wait()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        several = usage_of(process.pid)
        used = exact_usage_of(process.pid)
        for line in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(line), signal.SIGKILL)
    assert used.processes == several.processes == 6
    assert several.memory > 6 * 2 * HELD
    assert 2 * HELD < used.memory < 4 * HELD


@pytest.mark.bubblewrap
def test_no_folder_of_the_sandbox_is_memory_without_a_bound(folders: Folders, tmp_path: Path) -> None:
    """`/dev`, its shared memory, and the empty folders over what is hidden are memory too."""
    (hidden := folders["workspace"] / "hidden").mkdir()
    sandbox = detect(SandboxMode.REQUIRE, hidden=[hidden]).with_limits(Limits(tmp=2 * MIB), cgroup=None)
    if not sandbox.limits_tmp:
        return
    script = "\n".join(
        f"head -c 9000000 /dev/zero >{place}/big; stat -c %s {place}/big"
        for place in ("/dev/shm", hidden, "/dev")
    )
    said = run(sandbox.command(["sh", "-c", script], env={}, **folders), timeout=30).output
    assert [line for line in said.splitlines() if line.isdigit()] == [str(2 * MIB), str(2 * MIB)]
    assert "/dev/big: Read-only file system" in said


def test_a_fork_bomb_is_not_counted_to_its_end() -> None:
    """Counting thousands of processes takes longer than starting them."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            process = stack.enter_context(subprocess.Popen(["sleep", "60"]))
            stack.callback(process.kill)
        assert usage_of(os.getpid(), most_processes=3).processes == 4


def test_files_count_though_they_are_empty_and_once_though_they_have_two_names(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"empty-{number}").touch()
    assert size_of_folder(tmp_path) == 100 * 4096
    (tmp_path / "large").write_bytes(b"x" * MIB)
    (tmp_path / "same").hardlink_to(tmp_path / "large")
    assert size_of_folder(tmp_path) < 2 * MIB


def test_what_must_work_on_a_full_disk_does() -> None:
    """What people look with for what is wrong must work there, as `doctor`."""
    sandbox = (
        Sandbox(None).with_limits(Limits(free_disk=10**18, disk=5), cgroup=None).without_free_disk_limit()
    )
    assert sandbox.limits == Limits(disk=5)


@pytest.mark.bubblewrap
def test_the_kernel_ends_agents_before_the_portal_and_lets_them_wait(folders: Folders) -> None:
    sandbox = detect(SandboxMode.REQUIRE)
    script = "cat /proc/self/oom_score_adj; nice; ulimit -c"
    done = run(sandbox.command(["sh", "-c", script], env={}, **folders), timeout=30)
    assert done.output.split() == ["500", str(min(19, os.nice(0) + 10)), "0"]


@pytest.mark.bubblewrap
@pytest.mark.parametrize("session", ["", "setsid --wait "])
def test_sessions_of_agents_wait_for_the_portal(session: str, folders: Folders) -> None:
    """The kernel shares the CPU among sessions first; an agent's shells have sessions of their own."""
    lowered = f'grep -q "nice {SESSION_NICE}$" /proc/self/autogroup' if autogroups_enabled() else "true"
    waits = f"until {lowered}; do sleep 0.2; done"
    command = detect(SandboxMode.REQUIRE).command(
        ["sh", "-c", f"{session}sh -c '{waits}'"], env={}, **folders
    )
    assert run(command, timeout=30).exit_code == 0


@pytest.mark.bubblewrap
def test_limits_are_inherited_and_cannot_be_raised(folders: Folders) -> None:
    sandbox = detect(SandboxMode.REQUIRE).with_limits(Limits(disk=MIB), cgroup=None)
    done = run(
        sandbox.command(["bash", "-c", "ulimit -f unlimited; ulimit -f"], env={}, **folders), timeout=30
    )
    assert done.output.splitlines()[-1] == "1024"


def test_what_a_sandbox_uses_is_the_sum_of_its_tree() -> None:
    used = usage_of(os.getpid())
    assert used.processes >= 1 and used.memory > MIB
    assert usage_of(2**22 + 7).processes == 0


def test_a_folder_that_goes_away_meanwhile_counts_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 8192)
    (tmp_path / "out").symlink_to("/")
    assert 8192 <= size_of_folder(tmp_path) < MIB
    assert size_of_folder(tmp_path / "gone") == 0


class TestCgroup:
    """Files in place of a kernel's cgroup: on most machines of tests no cgroup is handed over to divide."""

    @pytest.fixture
    def delegated(self, tmp_path: Path) -> Path:
        group = tmp_path / "delegated"
        group.mkdir()
        (group / "cgroup.controllers").write_text("cpu io memory pids")
        (group / "cgroup.procs").write_text("")
        (group / "cgroup.subtree_control").write_text("")
        return group

    @pytest.fixture
    def handed_on(self, delegated: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What is written one after the other to say which controllers the groups below get."""
        written: list[str] = []
        write = Path.write_text

        def note(path: Path, text: str, *words: Any, **options: Any) -> int:
            if path == delegated / "cgroup.subtree_control":
                written.append(text)
            return write(path, text, *words, **options)

        monkeypatch.setattr(Path, "write_text", note)
        return written

    def test_a_delegated_group_is_divided(self, delegated: Path, handed_on: list[str]) -> None:
        assert usable_cgroup(delegated) == delegated
        assert not (delegated / "portal").exists(), "who only looks moves no process"
        assert prepare_cgroup(usable_cgroup(delegated)) == delegated
        assert (delegated / "portal").is_dir()
        assert handed_on == ["+memory +pids +cpu", "+io"]

    def test_a_kernel_that_cannot_weigh_disks_limits_agents_all_the_same(
        self, delegated: Path, handed_on: list[str]
    ) -> None:
        (delegated / "cgroup.controllers").write_text("cpu memory pids")
        assert prepare_cgroup(usable_cgroup(delegated)) == delegated
        assert handed_on == ["+memory +pids +cpu"]

    def test_a_restarted_worker_in_the_portals_group_finds_its_parent(self, delegated: Path) -> None:
        prepare_cgroup(usable_cgroup(delegated))
        assert usable_cgroup(delegated / "portal") == delegated

    def test_without_the_controllers_there_is_none(self, delegated: Path) -> None:
        (delegated / "cgroup.controllers").write_text("hugetlb")
        assert usable_cgroup(delegated) is None

    def test_each_command_has_a_group_with_its_limits_and_joins_it(
        self, delegated: Path, folders: Folders
    ) -> None:
        sandbox = Sandbox(None).with_limits(Limits(memory=7 * MIB, processes=9, cpus=1.5), cgroup=delegated)
        command = sandbox.command(["true"], env={}, **folders)
        group = command.group
        assert group is not None and group.parent == delegated
        assert (group / "memory.max").read_text() == str(7 * MIB)
        assert (group / "pids.max").read_text() == "9"
        assert (group / "cpu.max").read_text() == "150000 100000"
        assert run(command, timeout=30).exit_code == 0
        assert (group / "cgroup.procs").read_text().strip().isdigit()
        names = {"Memory", "Processes", "CPU cores", "CPU"}
        held = {limit.name: limit.by for limit in sandbox.enforced_limits if limit.name in names}
        assert held == dict.fromkeys(names, "cgroup")

    def test_what_is_not_limited_is_not_written(self, delegated: Path) -> None:
        group = make_cgroup(delegated, Limits())
        assert [file.name for file in group.iterdir()] == ["cpu.weight"]

    def test_where_the_kernel_weighs_disks_the_agent_comes_after_the_portal(
        self, delegated: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        as_folder = Path.mkdir

        def as_kernel(group: Path, *words: Any, **options: Any) -> None:
            as_folder(group, *words, **options)
            (group / "io.weight").write_text("default 100")

        monkeypatch.setattr(Path, "mkdir", as_kernel)
        group = make_cgroup(delegated, Limits())
        assert ((group / "io.weight").read_text(), (group / "cpu.weight").read_text()) == ("30", "30")

    def test_groups_of_the_past_are_removed(self, delegated: Path) -> None:
        old = delegated / "sandbox-1-old"
        old.mkdir()
        make_cgroup(delegated, Limits())
        assert not old.exists()

    @pytest.mark.parametrize(
        ("file", "before", "after", "reason"),
        [
            (
                "memory.events",
                "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\n",
                "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
                "more memory than the 1 MiB that an agent or check may use (CATHERDER_AGENT_MEMORY)",
            ),
            (
                "pids.events",
                "max 0\n",
                "max 12\n",
                "more than the 9 that an agent or check may have (CATHERDER_AGENT_PROCESSES)",
            ),
        ],
    )
    def test_the_kernels_word_is_the_reason(
        self, tmp_path: Path, file: str, before: str, after: str, reason: str
    ) -> None:
        """M7: with the variable that holds it, while it runs and after its end."""
        watch = Watch(Limits(memory=MIB, processes=9), os.getpid(), folders=[], group=tmp_path)
        (tmp_path / file).write_text(before)
        assert watch.final_problem() == ""
        (tmp_path / file).write_text(after)
        assert reason in watch.final_problem() and reason in watch.problem()


def test_limits_that_hold_nothing_are_said_to_hold_nothing() -> None:
    rows = {
        held.name: held
        for held in Sandbox(None).with_limits(Limits(tmp=5, memory=0), cgroup=None).enforced_limits
    }
    assert rows["Memory"].value == "no limit"
    assert rows["Temporary files"].by == ""
    assert rows["CPU"].by == ""  # nothing lowers their niceness without a sandbox
    cores = Sandbox(None).with_limits(Limits(cpus=2), cgroup=None).enforced_limits[-2]
    assert (cores.name, cores.value, cores.is_set, cores.by) == ("CPU cores", "2", True, "")
    assert json.dumps([held.value for held in rows.values()])
