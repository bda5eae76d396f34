"""`cat-herder.yaml`: what it says, every fault at once, choice of pipeline, snapshots (SPEC P1–P3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import (
    BUILT_IN_PIPELINE,
    FileExistsCheck,
    NoCheck,
    ProjectConfig,
    ShellCheck,
    StepConfig,
    choose_pipeline,
    json_schema,
    load_project_config,
    step_from_json,
    step_to_json,
)
from tasks_app.config.planning import clarified_from
from tasks_app.config.repository_settings import (
    Limits,
    PublishConfig,
    publish_from_json,
    publish_to_json,
    setup_from_json,
    setup_to_json,
)
from tasks_app.config.yaml_text import read_yaml
from tasks_app.core.errors import BadInput

FULL = """\
taskFolder: work/tasks
defaultPipeline: careful
interactionThreshold: 3
manageGitBranch: false
autoCommit: true
waitForRateLimitReset: yes
model: claude-opus-4-1
limits:
  maxTurns: 80
  maxCostUsd: 5
  stepTimeout: 45m
  checkTimeout: 90
pipelines:
  careful:
    - name: plan
      command: plan-task
      check: {type: fileExists, path: PLAN.md}
    - name: implement
      command: implement
      check:
        - {type: none}
        - type: shell
          command: make test
          timeout: 10m
        - {type: shell, command: grep -r TODO src, expect: fail}
      retry: 2
      model: "claude-sonnet-4-5[1m]"
      fileAccess:
        allowWrite: ["src/**", "app/[id]/page.tsx"]
      allowedTools: ["Bash(make:*)", Read]
      timeout: 2h
  quick:
    - {name: all, command: self}
"""


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load_project_config(text)
    return [f"{problem.line}: {problem.sentence}" for problem in caught.value.problems]


def test_p1_without_a_file_the_defaults_hold() -> None:
    assert load_project_config(None) == ProjectConfig(pipelines=(BUILT_IN_PIPELINE,))
    assert load_project_config("# nothing but a comment\n") == load_project_config(None)
    defaults = load_project_config(None)
    assert (defaults.manage_git_branch, defaults.auto_commit, defaults.wait_for_rate_limit_reset) == (
        True,
        False,
        False,
    )
    assert defaults.interaction_threshold is None


def test_p1_the_built_in_pipeline_plans_and_then_implements() -> None:
    plan, implement = BUILT_IN_PIPELINE.steps
    assert (plan.command, implement.command, implement.checks) == ("plan-task", "implement", ())
    assert plan.checks == (FileExistsCheck(type="fileExists", path="PLAN.md"),)


def test_p1_p2_every_key_is_read() -> None:
    config = load_project_config(FULL)
    assert config.task_folder == "work/tasks"
    assert (config.interaction_threshold, config.model) == (3, "claude-opus-4-1")
    assert (config.manage_git_branch, config.auto_commit, config.wait_for_rate_limit_reset) == (
        False,
        True,
        True,
    )
    assert config.limits == Limits(max_turns=80, max_cost_usd=5, step_timeout=2700, check_timeout=90)
    step = config.pipelines[0].steps[1]
    assert step.checks == (
        NoCheck(type="none"),
        ShellCheck(type="shell", command="make test", timeout=600),
        ShellCheck(type="shell", command="grep -r TODO src", expect="fail"),
    )
    assert (step.retry, step.model, step.timeout) == (2, "claude-sonnet-4-5[1m]", 7200)
    assert step.allow_write == ("src/**", "app/[id]/page.tsx")
    assert step.allowed_tools == ("Bash(make:*)", "Read")
    assert config.pipelines[1].steps[0].command == "self"


def test_p1_all_faults_of_a_file_are_reported_at_once_with_line_and_key() -> None:
    text = """\
taskfolder: x
interactionThreshold: high
manageGitBranch: 3
limits: {maxTurn: 3, maxCostUsd: 0}
pipelines:
  default:
    - name: plan
      comand: plan-task
      retry: "3"
    - name: plan
      command: implement
      check:
        - type: shell
          command: ""
          expect: maybe
        - {type: shel}
        - {path: x}
        - 7
      fileAccess:
        allowWrite: ["../**", /etc/**, "!src", ok/**]
"""
    assert faults_of(text) == [
        '1: taskfolder is not a known key; did you mean "taskFolder"?',
        '2: interactionThreshold must be a whole number from 0 to 5, not "high"',
        "3: manageGitBranch must be true or false, not 3",
        "4: limits.maxCostUsd must be more than 0, not 0",
        '4: limits.maxTurn is not a known key; did you mean "maxTurns"?',
        "7: pipelines.default[0].command is missing",
        '8: pipelines.default[0].comand is not a known key; did you mean "command"?',
        '9: pipelines.default[0].retry must be a whole number, not "3"',
        '10: pipelines.default[1].name is "plan", as in line 7; names must differ',
        "14: pipelines.default[1].check[0].command must not be empty",
        "15: pipelines.default[1].check[0].expect must be 'pass' or 'fail', not \"maybe\"",
        '16: pipelines.default[1].check[1] has the unknown type "shel"; '
        "known are: 'none', 'fileExists', 'shell'",
        "17: pipelines.default[1].check[2] has no type",
        "18: pipelines.default[1].check[3] must be a mapping, not 7",
        "20: pipelines.default[1].fileAccess.allowWrite[0] must stay inside the repository, "
        "without '..', not \"../**\"",
        '20: pipelines.default[1].fileAccess.allowWrite[1] must be relative to the repository, not "/etc/**"',
        "20: pipelines.default[1].fileAccess.allowWrite[2] begins with '!', but there are no exceptions; "
        "'./!' begins the name of a file with '!', not \"!src\"",
    ]


def test_a_pattern_that_names_no_tool_call_is_reported_with_its_line() -> None:
    text = f"""\
askBefore:
  - Bash(git push*)
  - git push
  - "Bash(a\\nb)"
pipelines:
  default: [{{name: do, command: self, askBefore: ["{"W" * 600}", mcp__*]}}]
"""
    tool = "must be a tool such as WebFetch, or a tool with a glob such as Bash(git push*)"
    found = faults_of(text)
    assert [fault.partition(" ")[0] for fault in found] == ["3:", "4:", "6:"]
    assert found[0] == f'3: askBefore[1] {tool}, not "git push"'
    assert "askBefore[2] must be one line without control characters" in found[1]
    assert "pipelines.default[0].askBefore[0] must have at most" in found[2]


def test_p1_one_fault_reads_as_one_line_and_many_as_a_list() -> None:
    with pytest.raises(ConfigInvalid) as one:
        load_project_config("\n\n\ninteractionThreshold: 6\n")
    wanted = "cat-herder.yaml:4: interactionThreshold must be a whole number from 0 to 5, not 6"
    assert str(one.value) == wanted
    with pytest.raises(ConfigInvalid) as two:
        load_project_config("a: 1\nb: 2\n", where="repo/cat-herder.yaml")
    assert str(two.value) == (
        "repo/cat-herder.yaml: 2 faults\n"
        "  repo/cat-herder.yaml:1: a is not a known key\n"
        "  repo/cat-herder.yaml:2: b is not a known key"
    )


def test_p1_a_file_with_hundreds_of_faults_is_listed_in_part_and_kept_whole() -> None:
    with pytest.raises(ConfigInvalid, match="… and 275 more") as caught:
        load_project_config("".join(f"key{number}: 1\n" for number in range(300)))
    assert len(caught.value.problems) == 300


@pytest.mark.parametrize("level", ["-1", "6", "high", "2.5", "true", "'3'", "", "[1]"])
def test_h1_a_threshold_outside_the_scale_is_refused_in_the_file(level: str) -> None:
    if level == "":
        # An empty value is a key that says nothing, as everywhere in YAML.
        assert load_project_config("interactionThreshold:\n").interaction_threshold is None
        return
    assert (
        "interactionThreshold must be a whole number from 0 to 5"
        in faults_of(f"interactionThreshold: {level}")[0]
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("pipelines: {}", "1: pipelines must hold a pipeline; without the key the default one is used"),
        ("pipelines:", "1: pipelines must hold a pipeline; without the key the default one is used"),
        ("pipelines: 3", "1: pipelines must be a mapping, not 3"),
        ("pipelines:\n  a: []", "2: pipelines.a must have at least one step"),
        ("pipelines:\n  a:", "2: pipelines.a must have at least one step"),
        ("pipelines:\n  a: 3", "2: pipelines.a must be a list, not 3"),
        ("pipelines:\n  a:\n  - 3", "3: pipelines.a[0] must be a mapping, not 3"),
        (
            "pipelines:\n  a:\n  - {name: x, command: self}\n  - {name: y, command: z}",
            "3: pipelines.a[0].command is self, which only a pipeline of one step may use; this one has 2",
        ),
        (
            "defaultPipeline: fsat\npipelines:\n  fast: [{name: x, command: y}]",
            '1: defaultPipeline is "fsat", which is no pipeline of this file; known are: fast; '
            'did you mean "fast"?',
        ),
        (
            "defaultPipeline: quick",
            '1: defaultPipeline is "quick", which is no pipeline of this file; known are: default',
        ),
        (
            "pipelines:\n  -x: [{name: x, command: y}]",
            "2: pipelines.-x must be letters, digits, '.', '_' and '-' (64 at most), not \"-x\"",
        ),
    ],
)
def test_p1_faults_of_whole_pipelines_are_named(text: str, fault: str) -> None:
    assert faults_of(text) == [fault]


@pytest.mark.parametrize("name", ["../x", "a b", "-x", "", "x" * 65, "ü", "a/b"])
def test_p2_names_of_steps_and_commands_are_safe_as_file_names(name: str) -> None:
    text = f"pipelines:\n  a:\n  - name: {json.dumps(name)}\n    command: {json.dumps(name)}\n"
    assert [fault.split(" must")[0] for fault in faults_of(text)] == [
        "3: pipelines.a[0].name",
        "4: pipelines.a[0].command",
    ]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "~/x", "C:\\x", "a\\..\\x", ".", "", "a\nb"]
)
def test_p5_a_check_of_a_path_outside_is_refused(path: str) -> None:
    step = f"{{name: x, command: y, check: {{type: fileExists, path: {json.dumps(path)}}}}}"
    (fault,) = faults_of(f"pipelines:\n  a:\n  - {step}\n")
    assert fault.startswith("3: pipelines.a[0].check.path must")


@pytest.mark.parametrize("glob", ["../**", "/**", "src/../../x", "~/**", "", "!src/**"])
def test_p7_a_write_glob_that_leaves_the_repository_or_is_broken_is_refused(glob: str) -> None:
    step = f"{{name: x, command: y, fileAccess: {{allowWrite: [{json.dumps(glob)}]}}}}"
    (fault,) = faults_of(f"pipelines:\n  a:\n  - {step}\n")
    assert fault.startswith("3: pipelines.a[0].fileAccess.allowWrite[0] ")


def test_p2_a_pipeline_called_check_does_not_confuse_the_places_of_faults() -> None:
    assert faults_of("pipelines:\n  check:\n  - name: x\n    command: y\n    retry: -1") == [
        "5: pipelines.check[0].retry must be at least 0, not -1"
    ]


@pytest.mark.parametrize("model", ["--dangerously-skip-permissions", "a b", "", "x\ny"])
def test_p1_a_model_cannot_become_an_argument_of_its_own(model: str) -> None:
    (fault,) = faults_of(f"model: {json.dumps(model)}")
    assert fault.startswith("1: model must be the name of a model")


@pytest.mark.parametrize("time", ["0", "-5", "true", "1.5", "'soon'", "8d", "999h", "1:30"])
def test_p2_a_timeout_that_is_no_duration_is_refused(time: str) -> None:
    (fault,) = faults_of(f"limits: {{stepTimeout: {time}}}")
    assert fault.startswith('1: limits.stepTimeout must be seconds or a duration such as "15m"')


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\tautoCommit: true", 1, "there is a tab; YAML is indented with spaces"),
        ("limits:\n\tmaxTurns: 1", 2, "there is a tab; YAML is indented with spaces"),
        ("- 1", 1, "the file must be a mapping of keys to values"),
        ("just words", 1, "the file must be a mapping of keys to values"),
        ("a: 1\n---\nb: 2", 2, "a second YAML document begins here; only one is allowed"),
        ("a: &x 1\nb: *x", 1, "anchors (&name) are not allowed"),
        ("b: *x", 1, "aliases (*name) are not allowed"),
        (
            "model: 'abc",
            1,
            "this is not YAML: while scanning a quoted scalar, found unexpected end of stream",
        ),
        ("autoCommit: true\nautoCommit: false", 2, "is there twice, first in line 1"),
        ("model: !!python/object:os.system x", 1, "has the tag tag:yaml.org,2002:python/object:os.system"),
        ("model: x\n\nb: \x00", 3, "there is a control character that YAML does not allow"),
        ("? [a]\n: 1", 1, "has a key that is not a word"),
        ("<<: {autoCommit: true}", 1, "is not a known key"),
    ],
)
def test_p1_text_that_is_not_plain_yaml_is_explained(text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_project_config(text)
    assert caught.value.problems[0].line == line
    assert message in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("line", "better"),
    [
        ("command: echo a: b", "command: 'echo a: b'"),
        ("- run: x: y", "- run: 'x: y'"),
        ("a: b:", "a: 'b:'"),
        ("- @scope/package", "- '@scope/package'"),
        ("- *.py", "- '*.py'"),
        ("- *name", "- '*name'"),
        ("- &name x", "- '&name x'"),
        ("- [id].tsx", "- '[id].tsx'"),
        ("path: {x}.ts", "path: '{x}.ts'"),
        ("a: `x`", "a: '`x`'"),
        ("a: %x", "a: '%x'"),
        ("a: 'it's'", "a: 'it''s'"),
        ('a: "\\d"', "a: '\\d'"),
        ('a: "x" y', "a: '\"x\" y'"),
        ("a: [1, 2", ""),
        ('a: "x', ""),
        ("a: [1, 2]\n b: 1", ""),
        (f"a: {'x' * 3_000}: y", ""),
    ],
)
def test_r5_a_value_that_must_stand_in_quotes_is_shown_in_quotes(line: str, better: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_yaml(line, where="f")
    message = caught.value.problems[0].message
    assert message.endswith(f"put the value in quotes: {better}") if better else "quotes" not in message
    if better:
        assert read_yaml(better, where="f").value


def test_r5_a_tag_says_to_quote_the_value() -> None:
    assert "put the value in quotes" in read_yaml("a: !src/x", where="f").problems[0].message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900_000,
        "- " * 400_000,
        "limits: " + "{a: " * 500,
        "a: [" + "1," * 300_000 + "1]",
        "#" * 1_000_001,
        "a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]",
    ],
)
def test_r5_yaml_made_to_exhaust_the_reader_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"nested too deeply or too long|larger than|anchors"):
        load_project_config(text)


def test_p1_a_byte_order_mark_and_crlf_are_fine() -> None:
    assert load_project_config("\ufeffautoCommit: true\r\nmodel: opus\r\n").model == "opus"


def test_p3_the_flag_goes_before_the_task_and_the_task_before_the_default() -> None:
    config = load_project_config(FULL)
    assert choose_pipeline(config, explicit="quick", task="careful").name == "quick"
    assert choose_pipeline(config, explicit=None, task="quick").name == "quick"
    assert choose_pipeline(config, explicit=None, task=None).name == "careful"
    no_default = load_project_config(
        "pipelines:\n  one: [{name: a, command: b}]\n  two: [{name: a, command: b}]"
    )
    assert choose_pipeline(no_default, explicit=None, task=None).name == "one"


@pytest.mark.parametrize(
    ("explicit", "task", "source"), [("qiuck", None, "the request"), (None, "qiuck", "the task")]
)
def test_p3_an_unknown_pipeline_is_an_error_that_lists_the_known_ones(
    explicit: str | None, task: str | None, source: str
) -> None:
    with pytest.raises(BadInput) as caught:
        choose_pipeline(load_project_config(FULL), explicit=explicit, task=task)
    assert str(caught.value) == (
        f'there is no pipeline "qiuck", which {source} names; '
        'known are: careful, quick; did you mean "quick"?'
    )


def test_p2_every_step_survives_its_snapshot_in_json() -> None:
    steps = [step for pipeline in load_project_config(FULL).pipelines for step in pipeline.steps]
    for step in [*steps, *BUILT_IN_PIPELINE.steps]:
        assert step_from_json(json.loads(json.dumps(step_to_json(step)))) == step


def test_p2_a_snapshot_speaks_the_words_of_the_file() -> None:
    step = StepConfig(name="x", command="y", timeout=60)
    assert step_to_json(step) == {
        "name": "x",
        "command": "y",
        "check": [],
        "retry": 0,
        "model": None,
        "fileAccess": None,
        "allowedTools": None,
        "timeout": 60,
        "askBefore": [],
        "planApproval": False,
        "network": None,
        "runsOn": None,
    }


def test_p2_a_damaged_snapshot_is_named() -> None:
    with pytest.raises(BadInput, match=r"^task 7, step 2: retry must be at least 0, not -3"):
        step_from_json({"name": "x", "command": "y", "retry": -3}, where="task 7, step 2")


def test_p1_the_schema_for_editors_knows_every_key_and_describes_it() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == {
        "taskFolder",
        "submodules",
        "toolchains",
        "readable",
        "lfs",
        "defaultPipeline",
        "pipelines",
        "interactionThreshold",
        "manageGitBranch",
        "autoCommit",
        "waitForRateLimitReset",
        "model",
        "ask",
        "askBefore",
        "ladder",
        "onCall",
        "limits",
        "network",
        "publishPlan",
        "runsOn",
        "setup",
    }
    step = schema["$defs"]["StepConfig"]
    assert set(step["properties"]) == {
        "name",
        "command",
        "check",
        "retry",
        "model",
        "fileAccess",
        "allowedTools",
        "timeout",
        "askBefore",
        "planApproval",
        "network",
        "runsOn",
    }
    assert schema["additionalProperties"] is False
    assert all("description" in key for key in [*schema["properties"].values(), *step["properties"].values()])


PUBLISHING = """\
pipelines:
  feature:
    steps:
      - {name: do, command: implement, check: {type: shell, command: make test}}
    publish: {pullRequest: true, draft: true, reviewers: [octocat, "@acme/team"]}
  push: {steps: [{name: do, command: implement}], publish: true}
  squash: {steps: [{name: do, command: implement}], publish: {squash: true, update: true}}
  off: {steps: [{name: do, command: implement}], publish: false}
  plain: [{name: do, command: implement}]
"""


def test_v7_a_pipeline_says_how_its_results_are_published() -> None:
    publish = {one.name: one.publish for one in load_project_config(PUBLISHING).pipelines}
    assert publish == {
        "feature": PublishConfig(pull_request=True, draft=True, reviewers=("octocat", "acme/team")),
        "push": PublishConfig(),
        "squash": PublishConfig(squash=True, update=True),
        "off": None,
        "plain": None,
    }
    for one in filter(None, publish.values()):
        snapshot = publish_to_json(one)
        assert snapshot is not None and publish_from_json(json.loads(json.dumps(snapshot))) == one


def test_v7_faults_of_a_pipeline_with_more_than_steps_are_named() -> None:
    text = """\
pipelines:
  a:
    publsh: true
    steps:
      - {name: x, command: y, check: {type: shell, command: ""}}
      - {name: x, command: z, check: [{type: shel}], retries: 1}
    publish: {pullrequest: true, squash: 3, reviewers: [octocat, "a b"]}
  b: {publish: true}
  c: {publish: now, steps: []}
  d: {steps: [{name: x, command: y}], publish: {draft: true, reviewers: [ann]}}
  limits: {steps: 3, extra: 1}
"""
    assert faults_of(text) == [
        '3: pipelines.a.publsh is not a known key; did you mean "publish"?',
        "5: pipelines.a.steps[0].check.command must not be empty",
        '6: pipelines.a.steps[1].name is "x", as in line 5; names must differ',
        '6: pipelines.a.steps[1].check[0] has the unknown type "shel"; '
        "known are: 'none', 'fileExists', 'shell'",
        '6: pipelines.a.steps[1].retries is not a known key; did you mean "retry"?',
        "7: pipelines.a.publish.reviewers needs pullRequest: true beside it",
        "7: pipelines.a.publish.squash must be true or false, not 3",
        '7: pipelines.a.publish.reviewers[1] must be the name of a user or a team at the forge, not "a b"',
        '7: pipelines.a.publish.pullrequest is not a known key; did you mean "pullRequest"?',
        "8: pipelines.b.steps must have at least one step",
        "9: pipelines.c.steps must have at least one step",
        '9: pipelines.c.publish must be true, false or a mapping, not "now"',
        "10: pipelines.d.publish.draft needs pullRequest: true beside it",
        "10: pipelines.d.publish.reviewers needs pullRequest: true beside it",
        "11: pipelines.limits.steps must be a list, not 3",
        "11: pipelines.limits.extra is not a known key",
    ]


@pytest.mark.parametrize(
    "written", ["setup: npm ci", "setup: [npm ci]", "setup: {run: npm ci}", "setup: {run: [npm ci]}"]
)
def test_m5_a_setup_may_be_a_command_a_list_or_a_mapping(written: str) -> None:
    setup = load_project_config(written).setup_in_effect
    assert setup is not None and (setup.run, setup.timeout, setup.network) == (("npm ci",), 1800, "full")
    snapshot = setup_to_json(setup)
    assert snapshot is not None and setup_from_json(json.loads(json.dumps(snapshot))) == setup


@pytest.mark.parametrize(
    ("file", "limit", "gets"),
    [
        ("setup: a", None, "full"),
        ("setup: a", "model", "none"),
        ("setup: a\nnetwork: model", None, "none"),
        ("setup: {run: a, network: full}\nnetwork: none", None, "full"),
        ("setup: {run: a, network: full}", "none", "none"),
        ("setup: {run: a, network: none}", "full", "none"),
    ],
)
def test_a_setup_gets_no_more_network_than_the_project_allows(file: str, limit: Any, gets: str) -> None:
    config = load_project_config(file).model_copy(update={"network_limit": limit})
    assert config.setup_in_effect is not None and config.setup_in_effect.network == gets


def test_faults_of_a_setup_are_named() -> None:
    text = """\
setup:
  run: []
  timout: 5m
  network: model
  cache:
    key: ../package-lock.json
    paths: [~/../.ssh, /etc, ~/]
    path: x
"""
    assert faults_of(text) == [
        "2: setup.run must have from 1 to 50 entries, not 0",
        '3: setup.timout is not a known key; did you mean "timeout"?',
        "4: setup.network must be 'full' or 'none', not \"model\"",
        "6: setup.cache.key[0] must stay inside the repository, without '..', not \"../package-lock.json\"",
        "7: setup.cache.paths[0] must stay inside the repository, without '..', not \"../.ssh\"",
        '7: setup.cache.paths[1] must be relative to the repository, not "/etc"',
        "7: setup.cache.paths[2] must not be empty",
        '8: setup.cache.path is not a known key; did you mean "paths"?',
    ]


@pytest.mark.parametrize("limits", ["softCostUsd: 0", "softCostUsd: 0, maxCostUsd: 5", "maxCostUsd: 5", ""])
def test_m8_no_soft_limit(limits: str) -> None:
    assert load_project_config(f"limits: {{{limits}}}\n").limits.asks_at_cost_usd is None


def test_m8_a_soft_limit_is_below_the_hard_one() -> None:
    assert load_project_config("limits: {softCostUsd: 2, maxCostUsd: 5}").limits.asks_at_cost_usd == 2
    for soft in ("5", "7.5"):
        assert faults_of(f"limits:\n  maxCostUsd: 5\n  softCostUsd: {soft}\n") == [
            f"3: limits.softCostUsd is {soft}, but must be less than 5 (maxCostUsd), at which the task fails"
        ]


@pytest.mark.parametrize("value", ["-1", "true", ".nan", "lots"])
def test_m8_a_soft_limit_is_an_amount(value: str) -> None:
    (fault,) = faults_of(f"limits: {{softCostUsd: {value}, maxCostUsd: 5}}\n")
    assert fault.startswith("1: limits.softCostUsd must be")


CLARIFYING = """\
pipelines:
  always: {clarify: true, steps: [{name: do, command: self}]}
  never: {clarify: false, steps: [{name: plan, command: plan-task}]}
  planned: {steps: [{name: plan, command: plan-task}]}
  written: {steps: [{name: think, command: implement, check: {type: fileExists, path: PLAN.md}}]}
  guarded: {steps: [{name: plan, command: plan-task, fileAccess: {allowWrite: [docs/**]}}]}
  plain: [{name: do, command: self}]
"""


def test_d8_a_pipeline_says_from_which_threshold_its_tasks_begin_with_questions() -> None:
    found = {one.name: clarified_from(one) for one in load_project_config(CLARIFYING).pipelines}
    assert found == {"always": 1, "never": None, "planned": 3, "written": 3, "guarded": None, "plain": None}
    assert clarified_from(BUILT_IN_PIPELINE) == 3


def test_clarify_is_true_or_false() -> None:
    text = "pipelines:\n  a:\n    clarify: sometimes\n    steps: [{name: do, command: self}]\n"
    (fault,) = faults_of(text)
    assert fault.startswith("3: pipelines.a.clarify must be true or false")
