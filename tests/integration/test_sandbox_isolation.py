"""R4: a sandboxed process sees what it was given and nothing of the portal, its host or other tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tasks_app.core.errors import SandboxError, SandboxUnavailable
from tasks_app.sandbox import Finished, Placement, Sandbox, SandboxedCommand, SandboxMode, detect, run
from tests.integration.fifo import Fifo

pytestmark = pytest.mark.bubblewrap


@dataclass(frozen=True)
class Place:
    """A portal's data directory with two tasks, and the sandbox of the first."""

    sandbox: Sandbox
    data: Path
    workspace: Path
    home: Path

    def command(self, script: str, **more: object) -> SandboxedCommand:
        shown = {"env": {}, "workspace": self.workspace, "home": self.home, **more}
        return self.sandbox.command(["sh", "-c", script], **shown)  # type: ignore[arg-type]

    def run(self, script: str, **more: object) -> Finished:
        return run(self.command(script, **more), timeout=30)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    data = tmp_path / "data"
    for name in ("mine", "mine-home", "other"):
        (data / name).mkdir(parents=True)
    (data / "db.sqlite3").write_text("secret rows")
    (data / "other" / "code.py").write_text("secret code")
    sandbox = detect(SandboxMode.AUTO, hidden=[data])
    if not sandbox.active:
        pytest.skip(sandbox.reason)
    return Place(sandbox, data, data / "mine", data / "mine-home")


def test_a_command_runs_in_its_workspace_and_its_exit_code_and_output_come_back(place: Place) -> None:
    done = place.run("pwd; echo oops >&2; exit 3")
    assert done == Finished(3, f"{place.workspace}\noops\n")


def test_workspace_home_and_writable_paths_can_be_written_under_their_own_names(place: Place) -> None:
    extra = place.data / "extra"
    extra.mkdir()
    done = place.run(f"touch a {place.home}/b {extra}/c; echo $HOME", writable=[extra])
    assert done == Finished(0, f"{place.home}\n")
    assert all(path.exists() for path in (place.workspace / "a", place.home / "b", extra / "c"))


def test_a_readable_path_can_be_read_and_not_written_even_inside_the_workspace(place: Place) -> None:
    decisions = place.workspace / "run"
    decisions.mkdir()
    (decisions / "answer").write_text("blue")
    done = place.run(f"cat {decisions}/answer; echo red > {decisions}/answer", readable=[decisions])
    assert done.output.startswith("blue") and done.exit_code != 0
    assert (decisions / "answer").read_text() == "blue"


@pytest.mark.parametrize(
    "place_to_write", ["/usr/x", "/etc/x", "/x", "/opt/x", "/proc/sys/kernel/core_pattern"]
)
def test_nothing_of_the_system_can_be_opened_for_writing(place: Place, place_to_write: str) -> None:
    # `>>` with nothing to append: if the sandbox leaked, the test would not change the machine.
    assert place.run(f": >> {place_to_write}").exit_code != 0


def test_the_data_directory_and_another_tasks_workspace_are_absent(place: Place) -> None:
    done = place.run(f"ls {place.data}; cat {place.data}/db.sqlite3 {place.data}/other/code.py")
    assert "secret" not in done.output
    assert done.output.splitlines()[:2] == ["mine", "mine-home"]


def test_a_hidden_folder_inside_a_readable_one_is_empty(place: Place) -> None:
    """A data directory may lie in /opt or in a folder that the operator wants read."""
    around = place.data.parent
    (around / "tools").write_text("fine")
    done = place.run(f"cat {around}/tools {around}/data/db.sqlite3", readable=[around])
    assert done.output.startswith("fine") and "secret rows" not in done.output


def test_a_hidden_folder_stays_hidden_under_a_link_to_its_parent(place: Place, tmp_path: Path) -> None:
    link = tmp_path / "link"
    inner = tmp_path / "shared" / "data"
    inner.mkdir(parents=True)
    (inner / "key").write_text("secret key")
    link.symlink_to(tmp_path / "shared")
    hiding = replace(place, sandbox=replace(place.sandbox, hidden=(inner,)))
    assert "secret key" not in hiding.run(f"cat {link}/data/key", readable=[link]).output


def test_homes_and_their_keys_are_absent(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "people" / "ann"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("secret key")
    (home / "bin").mkdir()
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "share").mkdir()
    (home / ".local" / "share" / "keyring").write_text("secret ring")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}:{home}/bin:{home}/.local/bin:{os.environ['PATH']}")
    done = place.run(
        f"cat {home}/.ssh/id_ed25519 {home}/.local/share/keyring; ls -A {home} {home}/.local /home /root/.ssh"
    )
    assert "secret" not in done.output
    assert {"bin", ".local"} <= set(done.output.split()) and ".ssh" not in done.output.split()


def test_a_link_to_a_home_on_path_does_not_show_the_home(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "people" / "ann"
    home.mkdir(parents=True)
    (home / "diary").write_text("secret")
    (tmp_path / "tools").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:{os.environ['PATH']}")
    assert "secret" not in place.run(f"cat {tmp_path}/tools/diary {home}/diary").output


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/ssl/private", "/etc/ssh", "/run", "/var/lib", "/sys", "/etc/sudoers"]
)
def test_secrets_and_sockets_of_the_machine_are_absent(place: Place, path: str) -> None:
    assert place.run(f"test -e {path}").exit_code == 1


def test_the_portals_source_is_absent(place: Place) -> None:
    assert place.run(f"test -e {Path(__file__).parents[2] / 'manage.py'}").exit_code == 1


def test_the_packages_of_an_installed_portal_are_absent_and_those_beside_them_are_not(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_packages = tmp_path / "site-packages"
    for name in ("catherder_site", "tasks_app", "other"):
        (site_packages / name).mkdir(parents=True)
        (site_packages / name / "code.py").touch()
    monkeypatch.setattr("tasks_app.sandbox.bubblewrap._PORTAL", site_packages)
    done = place.run(f"cd {site_packages} && ls */code.py", readable=[site_packages])
    assert done.output == "other/code.py\n"


def test_the_portals_environment_is_absent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "very-secret")
    done = place.run("env; cat /proc/*/environ", env={"GIVEN": "yes"})
    assert "GIVEN=yes" in done.output and "very-secret" not in done.output


def test_a_secret_given_to_the_command_is_not_among_its_arguments(place: Place) -> None:
    command = place.command("true", env={"ANTHROPIC_API_KEY": "very-secret"})
    assert not any("very-secret" in word for word in command.argv)


def test_no_other_process_is_seen(place: Place) -> None:
    done = place.run("ps -A -o comm=")
    assert set(done.output.split()) <= {"bwrap", "sh", "ps"}


def test_a_sandboxed_process_has_no_capabilities_and_cannot_get_any(place: Place) -> None:
    done = place.run("grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
    values = dict(line.split(":\t") for line in done.output.splitlines())
    assert values.pop("NoNewPrivs") == "1"
    if place.sandbox.user_namespace:
        assert set(values.values()) == {"0" * 16}
    assert values.get("CapEff", "0" * 16) == "0" * 16


def test_python_git_and_a_shell_work_inside(place: Place) -> None:
    done = place.run(
        f"{sys.executable} -c 'import ssl, json' && git init -q . && bash -c 'echo ok > /tmp/x; cat /tmp/x'"
    )
    assert done == Finished(0, "ok\n")


def test_a_missing_program_is_exit_127_with_its_name(place: Place) -> None:
    command = place.sandbox.command(["no-such-program"], workspace=place.workspace, home=place.home, env={})
    done = run(command, timeout=30)
    assert done.exit_code == 127 and "no-such-program" in done.output


def test_a_folder_that_was_turned_into_a_link_is_refused(place: Place) -> None:
    (place.workspace / "out").symlink_to(place.data)
    with pytest.raises(SandboxError, match="leads out of"):
        place.command("true", writable=[place.workspace / "out"])


@pytest.mark.parametrize("path", ["/", "relative", "/no/such/folder"])
def test_a_path_that_cannot_be_shown_is_named(place: Place, path: str) -> None:
    with pytest.raises(SandboxError, match=f"^{path} cannot be shown"):
        place.command("true", readable=[Path(path)])


def test_children_die_when_the_parent_is_killed(place: Place) -> None:
    """R2: killed with -9, the orphaned agent must not go on beside its successor."""
    fifo = Fifo(place.workspace / "alive")
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, "auto", str(place.workspace), str(place.home)]
    ) as parent:
        fifo.wait_for("ready")
        parent.send_signal(signal.SIGKILL)
        fifo.wait_for_end()


def test_nothing_of_a_command_is_left_when_it_was_timed_out(place: Place) -> None:
    fifo = Fifo(place.workspace / "alive")
    done = run(place.command("exec 3>alive; setsid sleep 1000 & sleep 1000"), timeout=2)
    assert done.timed_out and done.exit_code is None
    fifo.wait_for_end()


_PARENT = """
import sys
from pathlib import Path
from tasks_app.sandbox import SandboxMode, detect, run
sandbox = detect(SandboxMode(sys.argv[1]))
children = "setsid sleep 1000 & sleep 1000" if sandbox.active else "exec sleep 1000"
script = ["sh", "-c", "exec 3>alive; echo ready >&3; " + children]
run(sandbox.command(script, workspace=Path(sys.argv[2]), home=Path(sys.argv[3]), env={}), timeout=600)
"""


def test_without_the_sandbox_the_direct_child_dies_with_its_parent(tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "alive")
    with subprocess.Popen([sys.executable, "-c", _PARENT, "off", str(tmp_path), str(tmp_path)]) as parent:
        fifo.wait_for("ready")
        parent.send_signal(signal.SIGKILL)
        fifo.wait_for_end()


def test_off_runs_without_a_sandbox_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "very-secret")
    sandbox = detect(SandboxMode.OFF)
    done = run(sandbox.command(["env"], workspace=tmp_path, home=tmp_path, env={"GIVEN": "yes"}), timeout=30)
    assert not sandbox.active and "CATHERDER_SANDBOX=off" in sandbox.reason
    assert "GIVEN=yes" in done.output and "very-secret" not in done.output


def test_a_missing_bubblewrap_is_reported_and_refused_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt install bubblewrap" in detect(SandboxMode.AUTO).reason
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        detect(SandboxMode.REQUIRE)


def test_a_bubblewrap_that_does_not_work_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "setting up uid map" in detect(SandboxMode.AUTO).reason


@pytest.fixture
def moved(place: Place, tmp_path: Path) -> Place:
    """The same data directory, which sandboxed processes see at the path of another one of this machine."""
    portals = tmp_path / "portal"
    for name in ("mine", "other"):
        (portals / name).mkdir(parents=True)
        (portals / name / "portals").touch()
    return replace(place, sandbox=place.sandbox.placed(Placement(place.data, portals)))


def test_a_data_directory_is_shown_at_another_path(moved: Place) -> None:
    portals = moved.sandbox.placement.shown_at
    assert portals is not None
    (moved.workspace / "orders").mkdir()
    done = moved.run(
        f'pwd; echo "$HOME"; touch made; ls {portals} {portals}/mine; ls {moved.data} 2>&1; touch orders/no',
        readable=[moved.workspace / "orders"],
    )
    seen = [str(portals / "mine"), str(portals / "mine-home")]
    assert done.output.split()[:2] == seen and (moved.workspace / "made").exists()
    assert done.output.split()[2:8] == [
        f"{portals}:",
        "mine",
        "mine-home",
        f"{portals}/mine:",
        "made",
        "orders",
    ]
    assert "No such file" in done.output and "Read-only" in done.output
    assert "portals" not in done.output.replace(str(portals), "")


def test_what_this_machine_has_at_the_other_path_is_hidden(moved: Place, tmp_path: Path) -> None:
    """Although a folder above it is shown."""
    portals = moved.sandbox.placement.shown_at
    assert moved.run(f"find {portals} -type f", readable=[tmp_path]).output == ""


def test_without_a_sandbox_nothing_is_shown_at_another_path(place: Place, tmp_path: Path) -> None:
    none = Sandbox(None, "It is switched off.")
    assert none.placed(Placement(place.data, place.data)) is none
    with pytest.raises(SandboxUnavailable, match="switched off"):
        none.placed(Placement(place.data, tmp_path / "portal"))
