"""The installation's settings: a bad value stops the start and names the variable (issue, R5)."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from tasks_app.core.environment import (
    BASE_DIR,
    load,
    misspelt_variables,
    queue_secret,
    secret_key,
)
from tasks_app.core.environment_values import Bind
from tasks_app.core.errors import BadSetting
from tasks_app.core.files import prepare_data_dir, store_url

DEFAULTS = {
    "data_dir": BASE_DIR / "data",
    "bind": Bind(host="127.0.0.1", port=8000),
    "url": None,
    "proxy": None,
    "admin_user": "admin",
    "admin_password": None,
    "user": None,
    "local_sandboxes": "refuse",
    "tokens_from_workers": "refuse",
    "connections": 4_000,
    "connections_of_one": 256,
    "sockets_of_one": 100,
    "agent_cpus": 0,
    "agent_disk": 20 * 2**30,
    "agent_memory": 4 * 2**30,
    "agent_processes": 500,
    "agent_tmp": 2**30,
    "keep_free_disk": 2**30,
    "compact_after_hours": 24,
    "keep_logs_days": 0,
    "keep_workspaces_days": 0,
    "sandbox": "auto",
    "network": "full",
    "git_filters": (),
    "secret_key": None,
    "threshold": 0,
    "answer_limit": 200_000,
    "added_tasks": 20,
    "undo_seconds": 5,
    "api_rate": 600,
    "metrics_token": None,
    "log_format": "text",
    "otlp_endpoint": None,
    "otlp_traces_endpoint": None,
    "otlp_protocol": "http/protobuf",
    "otel_disabled": False,
    "agent_spans": "no",
    "prompt_cache": "auto",
    "git_memory": 4096,
    "setup_caches": 10 * 1024**3,
    "submodules": (),
    "toolchains": (),
    "readable": (),
    "workers": 4,
    "worker_labels": (),
    "tasks_per_person": 0,
    "database_url": None,
    "redis_url": None,
    "worker_token": None,
    "anthropic_api_key": None,
    "anthropic_base_url": None,
    "claude_oauth_token": None,
    "mail_server": None,
    "email_from": None,
    "webhook_allow": (),
    "oidc_issuer": None,
    "oidc_client_id": None,
    "oidc_client_secret": None,
    "oidc_name": "single sign-on",
    "github_client_id": None,
    "github_client_secret": None,
    "github_url": None,
    "sso_signup": "no",
    "session_idle_hours": 168,
    "second_factor": "optional",
}
ADDRESSES = [
    ({}, "http://127.0.0.1:8000"),
    ({"CATHERDER_BIND": "0.0.0.0:81"}, "http://127.0.0.1:81"),
    ({"CATHERDER_BIND": "[::]:81"}, "http://[::1]:81"),
    ({"CATHERDER_BIND": "[fd00::2]:81"}, "http://[fd00::2]:81"),
    ({"CATHERDER_BIND": "herd.lan:81"}, "http://herd.lan:81"),
    ({"CATHERDER_BIND": "0.0.0.0:81", "CATHERDER_URL": "https://herd.example/"}, "https://herd.example"),
]
GOOD = [
    ("CATHERDER_DATA_DIR", "/srv/herd", "data_dir", Path("/srv/herd")),
    ("CATHERDER_DATA_DIR", "~/herd", "data_dir", Path.home() / "herd"),
    ("CATHERDER_BIND", "0.0.0.0:80", "bind", Bind(host="0.0.0.0", port=80)),
    ("CATHERDER_BIND", "[::1]:8000", "bind", Bind(host="::1", port=8000)),
    ("CATHERDER_BIND", "localhost:0", "bind", Bind(host="localhost", port=0)),
    ("CATHERDER_URL", "https://herd.example/", "url", "https://herd.example"),
    ("CATHERDER_URL", "HTTPS://Herd.Example.:443//", "url", "https://herd.example"),
    ("CATHERDER_URL", "http://herd.lan:8000", "url", "http://herd.lan:8000"),
    ("CATHERDER_URL", "http://[FD00::2]:81", "url", "http://[fd00::2]:81"),
    ("CATHERDER_URL", "https://192.0.2.7", "url", "https://192.0.2.7"),
    ("CATHERDER_PROXY", "10.1.0.0/16, ::1", "proxy", (ip_network("10.1.0.0/16"), ip_network("::1"))),
    ("CATHERDER_GITHUB_URL", "https://github.example.org/", "github_url", "https://github.example.org"),
    ("CATHERDER_ADMIN_USER", "ann", "admin_user", "ann"),
    ("CATHERDER_ADMIN_PASSWORD", "  spaces are kept ", "admin_password", "  spaces are kept "),
    ("CATHERDER_USER", "ben", "user", "ben"),
    ("CATHERDER_LOCAL_SANDBOXES", "allow", "local_sandboxes", "allow"),
    ("CATHERDER_TOKENS_FROM_WORKERS", "allow", "tokens_from_workers", "allow"),
    ("CATHERDER_CONNECTIONS", "500", "connections", 500),
    ("CATHERDER_CONNECTIONS_PER_ADDRESS", "1000", "connections_of_one", 1000),
    ("CATHERDER_SOCKETS_PER_USER", "20", "sockets_of_one", 20),
    (
        "CATHERDER_TOOLCHAINS",
        "go=/srv/go; sdk=/srv/sdk",
        "toolchains",
        (("go", "/srv/go"), ("sdk", "/srv/sdk")),
    ),
    ("CATHERDER_READABLE", "/srv/data/; ~/.m2", "readable", ("/srv/data", "~/.m2")),
    ("CATHERDER_SUBMODULES", "/srv/git, https://", "submodules", ("/srv/git", "https://")),
    ("CATHERDER_SUBMODULES", "git@example.org:acme", "submodules", ("git@example.org:acme",)),
    ("CATHERDER_GIT_FILTERS", "lfs; up=tr a-z A-Z", "git_filters", (("lfs", ""), ("up", "tr a-z A-Z"))),
    ("CATHERDER_SANDBOX", "require", "sandbox", "require"),
    ("CATHERDER_SANDBOX", "off", "sandbox", "off"),
    ("CATHERDER_NETWORK", "model", "network", "model"),
    ("CATHERDER_SECRET_KEY", "k" * 32, "secret_key", "k" * 32),
    ("CATHERDER_INTERACTION_THRESHOLD", "5", "threshold", 5),
    ("CATHERDER_ANSWER_LIMIT", "1000", "answer_limit", 1000),
    ("CATHERDER_ADDED_TASKS", "0", "added_tasks", 0),
    ("CATHERDER_UNDO_SECONDS", "0", "undo_seconds", 0),
    ("CATHERDER_GIT_MEMORY", "512", "git_memory", 512),
    ("CATHERDER_WORKERS", "64", "workers", 64),
    ("CATHERDER_PROMPT_CACHE", "1h", "prompt_cache", "1h"),
    ("DATABASE_URL", "postgresql://ann:pw@db/herd", "database_url", "postgresql://ann:pw@db/herd"),
    ("DATABASE_URL", "sqlite:////srv/herd.sqlite3", "database_url", "sqlite:////srv/herd.sqlite3"),
    ("REDIS_URL", "rediss://cache:6380/1", "redis_url", "rediss://cache:6380/1"),
    ("ANTHROPIC_API_KEY", "sk-1", "anthropic_api_key", "sk-1"),
    ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/", "anthropic_base_url", "http://127.0.0.1:9"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "token", "claude_oauth_token", "token"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://tempo:4318/", "traces_endpoint", "http://tempo:4318/v1/traces"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/o/", "traces_endpoint", "https://t/o/"),
    ("CATHERDER_AGENT_SPANS", "no", "takes_agent_spans", False),
    ("CATHERDER_OIDC_NAME", "Our directory", "oidc_name", "Our directory"),
    ("CATHERDER_SSO_SIGNUP", "yes", "sso_signup", "yes"),
]
BAD = [
    ("CATHERDER_BIND", "8000", "HOST:PORT"),
    ("CATHERDER_BIND", ":8000", "HOST:PORT"),
    ("CATHERDER_BIND", "localhost:http", "HOST:PORT"),
    ("CATHERDER_BIND", "localhost:65536", "HOST:PORT"),
    ("CATHERDER_BIND", "localhost:-1", "HOST:PORT"),
    ("CATHERDER_BIND", "localhost:²", "HOST:PORT"),
    ("CATHERDER_PROXY", "10.0.0.0/8, proxy", "10.1.0.0/16"),
    ("CATHERDER_LOCAL_SANDBOXES", "yes", "'refuse' or 'allow'"),
    ("CATHERDER_TOKENS_FROM_WORKERS", "yes", "'refuse' or 'allow'"),
    ("CATHERDER_CONNECTIONS", "many", "integer"),
    ("CATHERDER_CONNECTIONS_PER_ADDRESS", "1", "greater than or equal to 10"),
    ("CATHERDER_SOCKETS_PER_USER", "0", "greater than or equal to 5"),
    ("CATHERDER_URL", "herd.example", "http:// or https://"),
    ("CATHERDER_URL", "https://", "http:// or https://"),
    ("CATHERDER_URL", "https://herd.example/portal", "must be without a path"),
    ("CATHERDER_URL", "https://herd.example/?a=b", "must be without a query"),
    ("CATHERDER_URL", "https://herd.example#top", "must be without a query"),
    ("CATHERDER_URL", "https://ann:pw@herd.example", "must be without a user"),
    ("CATHERDER_URL", "https://herd.example:99999", "port from 1 to 65535"),
    ("CATHERDER_URL", "https://herd.example:0", "port from 1 to 65535"),
    ("CATHERDER_URL", "https://herd.example:", "port from 1 to 65535"),
    ("CATHERDER_URL", "https://herd.example:web", "port from 1 to 65535"),
    ("CATHERDER_URL", "https://my_herd.example", "must have a host name of letters"),
    ("CATHERDER_URL", "https://*.example", "must have a host name of letters"),
    ("CATHERDER_URL", "https://herd..example", "must have a host name of letters"),
    ("CATHERDER_URL", "https://her d.example", "must have a host name of letters"),
    ("CATHERDER_URL", "https://hörd.example", "as browsers send it: xn--hrd-sna.example"),
    ("CATHERDER_URL", "https://[fd00::zz]", "IPv6"),
    ("CATHERDER_ADMIN_USER", "a" * 151, "150"),
    ("CATHERDER_GIT_FILTERS", "crypt", "must say which command the filter crypt is"),
    ("CATHERDER_TOOLCHAINS", "go", "must be NAME=FOLDER"),
    ("CATHERDER_TOOLCHAINS", "go=/", "must be NAME=FOLDER"),
    ("CATHERDER_TOOLCHAINS", "go=/srv/../root", "must be NAME=FOLDER"),
    ("CATHERDER_TOOLCHAINS", "go=srv/go", "must be NAME=FOLDER"),
    ("CATHERDER_TOOLCHAINS", "G O=/srv/go", "must be NAME=FOLDER"),
    ("CATHERDER_SUBMODULES", "/", "must be folders and https or ssh URLs"),
    ("CATHERDER_SUBMODULES", "/srv/../root", "must be folders and https or ssh URLs"),
    ("CATHERDER_SUBMODULES", "srv/git", "must be folders and https or ssh URLs"),
    ("CATHERDER_SUBMODULES", "file:///srv/git", "must be folders and https or ssh URLs"),
    ("CATHERDER_GIT_FILTERS", "a b=c", "must be lfs, or NAME=COMMAND"),
    ("CATHERDER_SANDBOX", "on", "'require', 'auto' or 'off'"),
    ("CATHERDER_NETWORK", "some", "'none', 'model' or 'full'"),
    ("CATHERDER_SECRET_KEY", "short", "32 characters"),
    ("CATHERDER_INTERACTION_THRESHOLD", "6", "less than or equal to 5"),
    ("CATHERDER_INTERACTION_THRESHOLD", "-1", "greater than or equal to 0"),
    ("CATHERDER_INTERACTION_THRESHOLD", "high", "integer"),
    ("CATHERDER_INTERACTION_THRESHOLD", "2.5", "integer"),
    ("CATHERDER_INTERACTION_THRESHOLD", "true", "integer"),
    ("CATHERDER_ANSWER_LIMIT", "999", "1000"),
    ("CATHERDER_ANSWER_LIMIT", "5000001", "5000000"),
    ("CATHERDER_ADDED_TASKS", "1001", "1000"),
    ("CATHERDER_UNDO_SECONDS", "61", "60"),
    ("CATHERDER_GIT_MEMORY", "511", "greater than or equal to 512"),
    ("CATHERDER_METRICS_TOKEN", "short", "at least 32 characters"),
    ("CATHERDER_LOG_FORMAT", "xml", "'text' or 'json'"),
    ("CATHERDER_WORKERS", "0", "greater than or equal to 1"),
    ("CATHERDER_PROMPT_CACHE", "2h", "Input should be 'auto', '5m' or '1h'"),
    ("CATHERDER_WORKERS", "65", "less than or equal to 64"),
    ("DATABASE_URL", "mysql://db/herd", "postgresql:// or sqlite://"),
    ("DATABASE_URL", "/srv/herd.sqlite3", "postgresql:// or sqlite://"),
    ("DATABASE_URL", "postgresql://db:port/herd", "not a database address"),
    ("CATHERDER_SSO_SIGNUP", "true", "'yes' or 'no'"),
    ("CATHERDER_AGENT_SPANS", "1", "'yes' or 'no'"),
    ("REDIS_URL", "http://cache", "redis://"),
    ("REDIS_URL", "redis://cache:port/0", "not a Redis address"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "tempo:4318", "http:// or https://"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://tempo", "http:// or https://"),
    ("ANTHROPIC_BASE_URL", "ftp://x", "http:// or https://"),
    ("ANTHROPIC_BASE_URL", "http://[::1", "Invalid IPv6 URL"),
]


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **variables}
    command = [sys.executable, str(BASE_DIR / "manage.py"), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_without_any_variable_the_defaults_hold() -> None:
    assert load({}).model_dump() == {**DEFAULTS, "bind": {"host": "127.0.0.1", "port": 8000}}


@pytest.mark.parametrize(
    ("data_home", "folder"),
    [
        ("", "/home/ann/.local/share/cat-herder"),
        ("/srv/ann", "/srv/ann/cat-herder"),
        ("relative", "/home/ann/.local/share/cat-herder"),
    ],
)
def test_an_installed_package_keeps_its_data_in_the_folder_of_the_user(
    data_home: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks_app.core.environment.in_checkout", lambda: False)
    monkeypatch.setenv("HOME", "/home/ann")
    assert load({"XDG_DATA_HOME": data_home}).data_dir == Path(folder)
    assert load({"XDG_DATA_HOME": data_home, "CATHERDER_DATA_DIR": "/srv/herd"}).data_dir == Path("/srv/herd")


def test_a_user_without_a_home_has_to_name_a_data_directory() -> None:
    with pytest.raises(BadSetting, match=r"^CATHERDER_DATA_DIR: ~nobody-of-that-name/data cannot be found"):
        load({"CATHERDER_DATA_DIR": "~nobody-of-that-name/data"})


@pytest.mark.parametrize(("variable", "value", "field", "meaning"), GOOD)
def test_a_variable_is_read(variable: str, value: str, field: str, meaning: Any) -> None:
    assert getattr(load({variable: value}), field) == meaning


@pytest.mark.parametrize("variable", sorted({variable for variable, *_ in GOOD}))
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_variable_counts_as_not_set(variable: str, value: str) -> None:
    assert load({variable: value}) == load({})


@pytest.mark.parametrize(("variable", "value", "said"), BAD)
def test_a_bad_value_is_refused_and_the_variable_named(variable: str, value: str, said: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        load({variable: value})
    assert str(refusal.value).startswith(f"{variable}: ")
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


def test_spans_are_sent_over_http_or_not_at_all() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:s3cret@tempo:4317"}
    with pytest.raises(BadSetting, match=r"^OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf") as refusal:
        load({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "s3cret" not in str(refusal.value)
    assert load({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).traces_endpoint == ""
    assert load({**endpoint, "OTEL_SDK_DISABLED": "true"}).traces_endpoint == ""


def test_spans_of_agents_need_an_endpoint() -> None:
    wanted = {"CATHERDER_AGENT_SPANS": "yes"}
    with pytest.raises(BadSetting) as refusal:
        load(wanted)
    assert str(refusal.value) == (
        "OTEL_EXPORTER_OTLP_ENDPOINT: is needed as well, because CATHERDER_AGENT_SPANS is yes"
    )
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://tempo:4318"}
    assert load({**wanted, **endpoint}).takes_agent_spans
    assert load({**wanted, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo:4318/o"}).takes_agent_spans
    assert not load(endpoint).takes_agent_spans
    for given in (wanted, {**wanted, **endpoint}):
        assert not load({**given, "OTEL_SDK_DISABLED": "true"}).takes_agent_spans


def test_no_proxy_is_believed_but_where_there_must_be_one() -> None:
    here = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    assert load({}).proxies == load({"CATHERDER_URL": "http://herd.lan:8000"}).proxies == ()
    assert load({"CATHERDER_URL": "https://herd.example"}).proxies == here
    named = {"CATHERDER_URL": "https://herd.example", "CATHERDER_PROXY": "10.1.0.0/16"}
    assert load(named).proxies == (ip_network("10.1.0.0/16"),)


def test_a_misspelt_variable_is_reported() -> None:
    given = {
        "CATHERDER_SANBOX": "require",
        "CATHERDER_WORKERS": "2",
        "CATHERDER_TEST_RING": "test",
        "HOME": "/",
    }
    said = "CATHERDER_SANBOX is not a variable of Cat Herder; did you mean CATHERDER_SANDBOX?"
    assert list(misspelt_variables(given)) == [said]


MAIL = {"CATHERDER_EMAIL_FROM": "Cat Herder <herder@example.org>"}
OIDC = {"CATHERDER_OIDC_CLIENT_ID": "herder", "CATHERDER_OIDC_CLIENT_SECRET": "s3cret"}


@pytest.mark.parametrize(("given", "address"), ADDRESSES)
def test_people_find_the_portal_where_it_listens_unless_an_address_is_given(
    given: dict[str, str], address: str, tmp_path: Path
) -> None:
    assert load({"CATHERDER_DATA_DIR": str(tmp_path), **given}).address == address


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "http://127.0.0.1:8303"),
        ({"CATHERDER_BIND": "127.0.0.1:0"}, "http://127.0.0.1:8303"),
        ({"CATHERDER_BIND": "127.0.0.1:9000"}, "http://127.0.0.1:9000"),
        ({"CATHERDER_URL": "https://herd.example"}, "https://herd.example"),
    ],
)
def test_commands_find_the_address_of_the_portal_in_the_data_directory(
    given: dict[str, str], address: str, tmp_path: Path
) -> None:
    store_url(tmp_path, "http://127.0.0.1:8303")
    assert load({"CATHERDER_DATA_DIR": str(tmp_path), **given}).address == address


def test_a_noted_address_that_is_none_is_not_believed(tmp_path: Path) -> None:
    store_url(tmp_path, "elsewhere")
    assert load({"CATHERDER_DATA_DIR": str(tmp_path)}).address == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail", {"host": "mail", "port": 25}),
        (
            "smtp+tls://ann:p%40ss@mail.example.org",
            {"port": 587, "user": "ann", "password": "p@ss", "tls": True},
        ),
        ("smtps://mail:4650/", {"port": 4650, "ssl": True, "tls": False}),
    ],
)
def test_a_mail_server_is_read(url: str, server: dict[str, Any]) -> None:
    read = load({**MAIL, "CATHERDER_EMAIL_URL": url})
    assert read.mail_server and read.email_from == MAIL["CATHERDER_EMAIL_FROM"]
    assert read.mail_server.model_dump().items() >= server.items()


@pytest.mark.parametrize(
    "url", ["mail:25", "http://mail", "smtp://", "smtp://mail:port", "smtp://mail/x", "smtp://[x"]
)
def test_a_bad_mail_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(BadSetting, match=r"^CATHERDER_EMAIL_URL: [^\n]+\Z"):
        load({**MAIL, "CATHERDER_EMAIL_URL": url})


@pytest.mark.parametrize("sender", ["herder", "a@b\nBcc: everybody@example.org"])
def test_a_bad_sender_is_refused(sender: str) -> None:
    with pytest.raises(BadSetting, match=r"^CATHERDER_EMAIL_FROM: must be an e-mail address"):
        load({"CATHERDER_EMAIL_URL": "smtp://mail", "CATHERDER_EMAIL_FROM": sender})


@pytest.mark.parametrize("issuer", ["https://id.example.org/realm/", "http://127.0.0.1:9000"])
def test_an_issuer_is_read(issuer: str) -> None:
    assert load({**OIDC, "CATHERDER_OIDC_ISSUER": issuer}).oidc_issuer == issuer.rstrip("/")


@pytest.mark.parametrize("issuer", ["http://id.example.org", "id.example.org", "ftp://id.example.org"])
def test_an_issuer_without_tls_is_refused(issuer: str) -> None:
    with pytest.raises(BadSetting, match=r"^CATHERDER_OIDC_ISSUER: must be "):
        load({**OIDC, "CATHERDER_OIDC_ISSUER": issuer})


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ("CATHERDER_EMAIL_URL=smtp://mail", "CATHERDER_EMAIL_FROM"),
        ("CATHERDER_EMAIL_FROM=a@b", "CATHERDER_EMAIL_URL"),
        ("CATHERDER_OIDC_CLIENT_SECRET=s3cret", "CATHERDER_OIDC_ISSUER"),
        ("CATHERDER_OIDC_ISSUER=https://id", "CATHERDER_OIDC_CLIENT_ID"),
        ("CATHERDER_GITHUB_CLIENT_ID=x", "CATHERDER_GITHUB_CLIENT_SECRET"),
    ],
)
def test_half_of_a_setting_is_refused(given: str, lacking: str) -> None:
    name, value = given.split("=", 1)
    with pytest.raises(BadSetting) as refusal:
        load({name: value})
    assert f"{lacking}: is needed as well, because {name} is set" in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


WORKER = {
    "CATHERDER_WORKER_TOKEN": f"cathw_build-2.{43 * 'A'}",
    "CATHERDER_URL": "https://herder.example.org",
    "DATABASE_URL": "postgresql://ann:pw@db/herd",
}


def test_a_worker_host_has_the_name_in_its_token() -> None:
    environment = load(WORKER)
    assert environment.worker_token == WORKER["CATHERDER_WORKER_TOKEN"]
    assert environment.worker_name == "build-2" and load({}).worker_name == ""


@pytest.mark.parametrize("lacking", ["CATHERDER_URL", "DATABASE_URL"])
def test_a_worker_host_must_know_portal_and_database(lacking: str) -> None:
    with pytest.raises(BadSetting, match=f"^{lacking}: is needed as well, because CATHERDER_WORKER_TOKEN"):
        load({name: value for name, value in WORKER.items() if name != lacking})


@pytest.mark.parametrize("token", ["s3cret", f"cathw_.{43 * 'A'}", f"cathw_Build.{43 * 'A'}", "cathw_a.A"])
def test_what_is_no_worker_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        load({**WORKER, "CATHERDER_WORKER_TOKEN": token})
    assert str(refusal.value).startswith(
        "CATHERDER_WORKER_TOKEN: must be what `cat-herder worker_token NAME`"
    )
    assert token not in str(refusal.value)


def test_the_key_of_the_queue_is_not_the_secret_key() -> None:
    """Worker hosts get it."""
    one, again, other = (queue_secret(load({"CATHERDER_SECRET_KEY": letter * 32})) for letter in "aab")
    assert one == again != other and "aaaa" not in one


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(BadSetting) as refusal:
        load({"CATHERDER_BIND": "x", "CATHERDER_SANDBOX": "on", "CATHERDER_WORKERS": "many"})
    named = {line.split(":")[0] for line in str(refusal.value).splitlines()}
    assert named == {"CATHERDER_BIND", "CATHERDER_SANDBOX", "CATHERDER_WORKERS"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CATHERDER_SECRET_KEY", "hunter2"),
        ("DATABASE_URL", "mysql://ann:hunter2@db/herd"),
        ("DATABASE_URL", "postgresql://ann:hunter2@db:port/herd"),
        ("REDIS_URL", "http://:hunter2@cache"),
        ("REDIS_URL", "redis://:hunter2@cache:port/0"),
        ("ANTHROPIC_BASE_URL", "ftp://ann:hunter2@x"),
    ],
)
def test_a_refusal_does_not_show_secrets(variable: str, value: str) -> None:
    """R4"""
    with pytest.raises(BadSetting) as refusal:
        load({variable: value})
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("variables", "rehearsal"),
    [
        ({}, True),
        ({"ANTHROPIC_BASE_URL": "http://proxy"}, True),
        ({"ANTHROPIC_API_KEY": "sk-1"}, False),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "token"}, False),
    ],
)
def test_without_a_key_or_a_login_it_is_a_rehearsal(variables: dict[str, str], rehearsal: bool) -> None:
    assert load(variables).rehearsal is rehearsal


class TestTheDataDirectory:
    def test_it_is_made_with_its_parents_for_its_owner_alone(self, tmp_path: Path) -> None:
        made = prepare_data_dir(tmp_path / "a" / "b")
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert list(made.iterdir()) == []

    def test_where_a_file_is_it_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(BadSetting, match=f"^CATHERDER_DATA_DIR: {tmp_path}/file cannot be written"):
            prepare_data_dir(tmp_path / "file")

    def test_processes_that_start_together_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        """R2: worker and web server are started at once, and agents' programs beside them."""
        with ThreadPoolExecutor(8) as starting:
            for done in [starting.submit(prepare_data_dir, tmp_path) for _ in range(800)]:
                assert done.result() == tmp_path


class TestTheSecretKey:
    def test_a_configured_one_is_taken_and_none_is_written(self, tmp_path: Path) -> None:
        given = load({"CATHERDER_SECRET_KEY": "k" * 40, "CATHERDER_DATA_DIR": str(tmp_path)})
        assert secret_key(given) == "k" * 40
        assert list(tmp_path.iterdir()) == []

    def test_it_is_made_once_and_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        environment = load({"CATHERDER_DATA_DIR": str(tmp_path)})
        made = secret_key(environment)
        assert len(made) >= 50 and secret_key(environment) == made
        assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
        assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600

    def test_processes_that_start_together_get_the_same_one(self, tmp_path: Path) -> None:
        """A second process must not read the file while the first one writes it."""
        script = (
            "import os, sys; from tasks_app.core.environment import load, secret_key;"
            "sys.stdin.read(); print(secret_key(load(os.environ)))"
        )
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", script],
                env={"CATHERDER_DATA_DIR": str(tmp_path)},
                cwd=BASE_DIR,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        with ThreadPoolExecutor(len(racers)) as pool:
            keys = list(pool.map(lambda racer: racer.communicate()[0], racers))
        assert len(set(keys)) == 1 and keys[0].strip()


class TestManage:
    """Issue: a bad value stops the start and names the variable."""

    def test_a_bad_variable_ends_any_command_with_2_and_a_sentence(self, tmp_path: Path) -> None:
        done = manage(
            "check", CATHERDER_DATA_DIR=str(tmp_path), CATHERDER_BIND="x", CATHERDER_INTERACTION_THRESHOLD="6"
        )
        assert done.returncode == 2
        assert done.stderr.startswith("error: Cat Herder cannot start:\n")
        assert "CATHERDER_BIND: " in done.stderr and "CATHERDER_INTERACTION_THRESHOLD: " in done.stderr
        assert "Traceback" not in done.stderr and done.stdout == ""

    def test_a_data_directory_that_cannot_be_written_ends_it_as_well(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        done = manage("check", CATHERDER_DATA_DIR=str(tmp_path / "file"))
        assert done.returncode == 2 and "CATHERDER_DATA_DIR" in done.stderr

    def test_with_good_ones_it_runs(self, tmp_path: Path) -> None:
        done = manage("check", CATHERDER_DATA_DIR=str(tmp_path / "data"), CATHERDER_SANDBOX="auto")
        assert (done.returncode, done.stderr) == (0, "")


def test_networks_for_webhooks_are_read() -> None:
    listed = load({"CATHERDER_WEBHOOK_ALLOW": "10.1.0.0/16, fd00::/8"}).webhook_allow
    assert [str(network) for network in listed] == ["10.1.0.0/16", "fd00::/8"]


@pytest.mark.parametrize("networks", ["10.1.0.1/16", "here", "10.0.0.0/33"])
def test_a_bad_network_is_refused(networks: str) -> None:
    with pytest.raises(BadSetting, match=r"^CATHERDER_WEBHOOK_ALLOW: must be networks"):
        load({"CATHERDER_WEBHOOK_ALLOW": networks})


def open_to_all(data_dir: Path) -> list[Path]:
    """A data directory as somebody may have copied it, with what is in it."""
    data_dir.mkdir()
    names = ("secret_key", "catherder.sqlite3", "catherder.sqlite3-wal", "huey.sqlite3")
    files = [data_dir / name for name in names]
    for file in files:
        file.write_text("x" * 40)
        file.chmod(0o644)
    data_dir.chmod(0o755)
    return files


def test_an_existing_data_directory_is_closed_to_others(tmp_path: Path) -> None:
    """R4: the database and the key that signs sessions are nobody else's to read."""
    files = open_to_all(tmp_path / "data")
    prepare_data_dir(tmp_path / "data")
    for place in (tmp_path / "data", *files):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0, place


def test_a_directory_that_others_use_as_well_is_not_touched(tmp_path: Path) -> None:
    """CATHERDER_DATA_DIR=/srv would close it to all other services."""
    shared = tmp_path / "srv"
    (shared / "website").mkdir(parents=True)
    shared.chmod(0o755)
    with pytest.raises(BadSetting, match=r"^CATHERDER_DATA_DIR: .*srv can be read by others and holds files"):
        prepare_data_dir(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    shared.chmod(0o700)
    prepare_data_dir(shared)


def test_a_link_in_the_data_directory_changes_no_file_outside(tmp_path: Path) -> None:
    open_to_all(tmp_path / "data")
    outside = tmp_path / "outside"
    outside.touch(0o644)
    (tmp_path / "data/other.sqlite3").symlink_to(outside)
    before = outside.stat().st_mode
    prepare_data_dir(tmp_path / "data")
    assert outside.stat().st_mode == before


def test_an_open_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lets nobody but the owner (and root, as which tests may run) change the mode."""
    open_to_all(tmp_path / "data")

    def refused(self: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(BadSetting, match=r"belongs to another user.*chmod -R go="):
        prepare_data_dir(tmp_path / "data")
