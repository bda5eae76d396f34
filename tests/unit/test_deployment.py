"""The files in `deploy/` agree with each other and with the portal (O4)."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import load_command_class

from tasks_app.asgi_layers.probes import Probes, Readiness
from tasks_app.core.environment import Environment, load
from tasks_app.management import supervisor
from tasks_app.management.commands import up, worker
from tests.deployment import DEPLOY, FILLED_IN, UNITS, compose, environment_of, unit_lines, variables_of

ROOT = DEPLOY.parent
EXAMPLES = ("compose.env.example", "systemd/cat-herder.env.example")
KNOWN = {str(field.alias) for field in Environment.model_fields.values()}
SERVICES = compose()["services"]
PORTAL = ("web", "worker")
#: They hide parts of /proc, or forbid namespaces and mounts, so bubblewrap cannot make a sandbox.
BREAKS_BUBBLEWRAP = {
    *("ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "RestrictNamespaces"),
    *("PrivateUsers", "SystemCallFilter", "ProtectControlGroups", "RootDirectory", "InaccessiblePaths"),
}


def parse(arguments: list[str]) -> Any:
    name, *rest = arguments
    return load_command_class("tasks_app", name).create_parser("cat-herder", name).parse_args(rest)


def seconds(duration: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(s|min|)", duration).groups()  # type: ignore[union-attr]
    return int(number) * (60 if unit == "min" else 1)


# compose


@pytest.mark.parametrize("service", PORTAL)
def test_a_service_of_the_portal_runs_a_command_with_settings_that_exist(service: str) -> None:
    parse(SERVICES[service]["command"])
    given = environment_of(service)
    assert set(given) - KNOWN == set(FILLED_IN)
    assert load(given).sandbox == "require"


def test_the_web_service_and_the_worker_service_share_their_data_and_start_one_worker() -> None:
    assert parse(SERVICES["web"]["command"]).no_worker is True
    web, work = (load(environment_of(service)) for service in PORTAL)
    assert web.data_dir == work.data_dir and web.database_url == work.database_url
    (volume,) = SERVICES["web"]["volumes"]
    assert SERVICES["worker"]["volumes"] == [volume]
    assert web.data_dir.is_relative_to(volume.partition(":")[2])


def test_the_web_server_goes_before_workers_and_agents() -> None:
    web, work = (dict(unit_lines(unit)) for unit in UNITS)
    assert {name: int(web[name]) for name in ("CPUWeight", "IOWeight")} == {"CPUWeight": 300, "IOWeight": 300}
    assert not {"CPUWeight", "IOWeight"} & set(work), "the kernel gives 100"
    assert SERVICES["web"]["cpu_shares"] == 3 * 1024 and "cpu_shares" not in SERVICES["worker"]


def test_up_without_a_worker_starts_the_web_server_alone() -> None:
    with socket.socket() as listener:
        assert [child.name for child in up.children(listener)] == ["web server", "worker"]
        assert [child.name for child in up.children(listener, worker=False)] == ["web server"]


def test_the_portal_logs_in_to_the_services_that_compose_starts() -> None:
    settings = load(environment_of("web"))
    database, redis = urlsplit(settings.database_url or ""), urlsplit(settings.redis_url or "")
    server = SERVICES["postgres"]["environment"]
    given = (database.username, database.password, database.path.strip("/"))
    assert given == (server["POSTGRES_USER"], server["POSTGRES_PASSWORD"], server["POSTGRES_DB"])
    assert (
        redis.password
        == SERVICES["redis"]["command"][-1]
        == SERVICES["redis"]["environment"]["REDISCLI_AUTH"]
    )
    assert {database.hostname, redis.hostname} == {"postgres", "redis"}
    for service in PORTAL:
        assert "services" in set(SERVICES[service]["networks"]) & set(SERVICES["redis"]["networks"])


def test_the_proxy_reaches_the_web_server_and_is_the_only_one_that_is_believed() -> None:
    settings, proxy = load(environment_of("web")), SERVICES["proxy"]
    assert proxy["environment"]["CATHERDER_WEB"] == f"web:{settings.bind.port}"
    (subnet,) = compose()["networks"]["front"]["ipam"]["config"]
    assert settings.proxies == (ip_network(subnet["subnet"]),)
    on_front = {name for name, service in SERVICES.items() if "front" in service["networks"]}
    assert on_front == {"proxy", "web"}
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"proxy"}


def test_the_proxy_takes_its_addresses_from_variables_that_it_gets() -> None:
    text = (DEPLOY / "Caddyfile").read_text()
    named = set(re.findall(r"\{\$(\w+)", text))
    assert named == set(SERVICES["proxy"]["environment"])
    default = re.findall(r"\{\$CATHERDER_WEB:([\d.:]+)\}", text)
    assert default == [variables_of("systemd/cat-herder.env.example")["CATHERDER_BIND"]]
    mounted = [volume.split(":")[0] for volume in SERVICES["proxy"]["volumes"] if volume.startswith("./")]
    assert mounted and all((DEPLOY / name).is_file() for name in mounted)


async def test_the_health_check_asks_a_probe_on_the_port_of_the_web_server() -> None:
    url = re.findall(r'http://[^"]+', SERVICES["web"]["healthcheck"]["test"][-1])[0]
    assert urlsplit(url).port == load(environment_of("web")).bind.port

    async def beyond(*_: Any) -> Any:
        raise AssertionError(f"{url} is no probe")

    sent: list[Mapping[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    probes = Probes(beyond, readiness=Readiness(lambda: ()))
    await probes({"type": "http", "path": urlsplit(url).path, "method": "GET"}, beyond, send)
    assert sent[0]["status"] == 200


def test_a_container_may_take_as_long_to_stop_as_the_portal_does() -> None:
    for service in PORTAL:
        assert seconds(SERVICES[service]["stop_grace_period"]) > max(
            supervisor.STOP_SECONDS, worker.STOP_SECONDS
        )


def test_services_wait_for_services_that_have_health_checks_and_volumes_exist() -> None:
    volumes = set(compose()["volumes"])
    for service in SERVICES.values():
        for needed in service.get("depends_on", {}):
            assert "test" in SERVICES[needed]["healthcheck"]
        named = {volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith("./")}
        assert named <= volumes


# The image


def test_the_image_is_built_from_files_that_are_there_and_that_its_context_has() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [
        name for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", text) for name in shlex.split(line)[:-1]
    ]
    ignored, *listed = [
        line
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line and line[0] != "#"
    ]
    assert ignored == "*" and sorted(copied) == sorted(line[1:] for line in listed if line[0] == "!")
    assert all((ROOT / name).exists() for name in copied)
    assert "\nhatchling==" in (ROOT / "requirements.lock").read_text()  # no build isolation


def test_the_image_has_what_agents_need_and_no_secret() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    for program in ("bubblewrap", "git", "git-lfs", "openssh-client"):
        assert f" {program} " in text
    assert not re.search(r"(?m)^(ARG|ENV)\b.*(KEY|TOKEN|PASSWORD|SECRET)", text)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_settings_names_variables_that_exist_and_holds_no_secret(example: str) -> None:
    given = variables_of(example)
    assert set(given) - KNOWN <= set(FILLED_IN)
    assert [name for name in given if re.search("PASSWORD|KEY|TOKEN", name) and given[name]] == []
    load(given)


# systemd


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_commands_that_exist_with_the_settings_of_the_example(unit: Path) -> None:
    lines = unit_lines(unit)
    commands = [value for key, value in lines if key.startswith("Exec")]
    for command in commands:
        program, *arguments = shlex.split(command.replace("${MAINPID}", "17"))
        assert program == "/opt/cat-herder/bin/cat-herder"
        parse(arguments)
    assert ("EnvironmentFile", "/etc/cat-herder/cat-herder.env") in lines
    directory = dict(lines)["StateDirectory"]
    assert load(variables_of("systemd/cat-herder.env.example")).data_dir.is_relative_to(
        f"/var/lib/{directory}"
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_no_hardening_that_breaks_the_sandbox(unit: Path) -> None:
    lines = dict(unit_lines(unit))
    assert lines["NoNewPrivileges"] == "yes" and not BREAKS_BUBBLEWRAP & set(lines)
    assert seconds(lines["TimeoutStopSec"]) > supervisor.STOP_SECONDS and lines["KillMode"] == "mixed"


def test_a_unit_of_a_worker_is_drained_before_it_ends() -> None:
    lines = dict(unit_lines(DEPLOY / "systemd/cat-herder-worker@.service"))
    assert parse(shlex.split(lines["ExecStop"])[1:]).drain == ":${MAINPID}"
    assert lines["Delegate"] == "yes"


@pytest.mark.systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault_in_a_unit(unit: Path, tmp_path: Path) -> None:
    """On this machine `true` stands for the program, because systemd wants to see it."""
    checked = tmp_path / unit.name
    program = shutil.which("true") or ""
    checked.write_text(unit.read_text().replace("/opt/cat-herder/bin/cat-herder", program))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(checked)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "cat-herder" in line]) == (0, [])
