"""Every fault of a repository at once, each at its file and line (SPEC P1, P2, P5, H2, H12, R5)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks_app.config.validation import Report, validate
from tasks_app.schemas.projects import ReportOut

PROMPTS = Path(__file__).parents[2] / "prompts"
ASKING = '{\n  "permissions": {\n    "allow": ["Bash(cat-herder ask:*)"]\n  }\n}\n'

Write = Callable[..., "Repository"]


class Repository:
    """A folder with the files of a repository; git is not asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prompts = PROMPTS

    def write(self, name: str, text: str | bytes, *, executable: bool = False) -> Repository:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o755 if executable else 0o644)
        return self

    def report(self, *, threshold: int = 0) -> Report:
        return validate(self.root, prompts=self.prompts, threshold=threshold, with_git=False)

    def told(self, *, threshold: int = 0) -> list[str]:
        """`E file:line: sentence` for errors, `W …` for warnings."""
        return [
            f"{one.severity.value[0].upper()} {one.file}:{one.problem.line}: {one.problem.sentence}"
            for one in self.report(threshold=threshold).findings
        ]

    def pipeline(self, *steps: str) -> Repository:
        listed = "".join(f"    - {step}\n" for step in steps)
        return self.write("cat-herder.yaml", f"pipelines:\n  default:\n{listed}")

    def shell(self, command: str) -> Repository:
        """A step whose check runs the command; it stands on line 6."""
        return self.write(
            "cat-herder.yaml",
            "pipelines:\n  default:\n    - name: do\n      command: implement\n"
            f"      check:\n        command: {command!r}\n        type: shell\n",
        )


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An empty one, on a machine that has sh, git, make, npm, yarn and pnpm, and nothing else on its PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "git", "make", "npm", "yarn", "pnpm"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    (tmp_path / "repository").mkdir()
    return Repository(tmp_path / "repository")


def test_an_empty_repository_has_the_defaults_and_no_faults(repository: Repository) -> None:
    assert repository.told() == []
    assert "no cat-herder.yaml (the defaults hold), 1 pipeline, 2 steps" in repository.report().looked_at


def test_the_sample_is_clean() -> None:
    sample = Path(__file__).parents[2] / "tasks_app" / "rehearsal" / "sample" / "repository"
    report = validate(sample, prompts=PROMPTS, with_git=False)
    assert report.findings == ()


def test_r5_faults_of_all_kinds_are_found_at_once(repository: Repository) -> None:
    """One wrong key hides neither the missing prompt, nor the program, nor the task."""
    repository.write(
        "cat-herder.yaml",
        """\
interactionTreshold: 3
model: gpt-4
pipelines:
  default:
    - name: plan
      command: no-such-prompt
      retry: 99
    - name: plan
      command: self
      check: {type: shell, command: no-such-program}
      fileAccess: {allowWrite: ["../**"]}
""",
    ).write("cat-herder-tasks/one.md", "---\npipeline: defualt\n---\nDo it.\n")
    told = "\n".join(repository.told())
    for fault in (
        'E cat-herder.yaml:1: interactionTreshold is not a known key; did you mean "interactionThreshold"?',
        'W cat-herder.yaml:2: model is "gpt-4", which is no model of a known family',
        'E cat-herder.yaml:6: pipelines.default[0].command is "no-such-prompt"; there are no instructions',
        "E cat-herder.yaml:7: pipelines.default[0].retry must be at most 20, not 99",
        'E cat-herder.yaml:8: pipelines.default[1].name is "plan", as in line 5; names must differ',
        "E cat-herder.yaml:9: pipelines.default[1].command is self, which only a pipeline of one step may",
        'E cat-herder.yaml:10: pipelines.default[1].check.command runs "no-such-program"',
        "E cat-herder.yaml:11: pipelines.default[1].fileAccess.allowWrite[0] must stay inside the repository",
        'E cat-herder-tasks/one.md:2: pipeline is "defualt", which is no pipeline of cat-herder.yaml; '
        'known are: default; did you mean "default"?',
    ):
        assert fault in told
    assert len(repository.told()) == 9


def test_r5_errors_and_warnings_are_separate_in_json(repository: Repository) -> None:
    repository.write("cat-herder.yaml", "interactionThreshold: 6\nmodel: gpt-4\n")
    facts = ReportOut.from_row(repository.report()).model_dump()
    assert facts["ok"] is False
    assert facts["errors"] == [
        {
            "file": "cat-herder.yaml",
            "line": 1,
            "key": "interactionThreshold",
            "message": "interactionThreshold must be a whole number from 0 to 5, not 6",
            "fixable": False,
        }
    ]
    (warned,) = facts["warnings"]
    assert (warned["line"], warned["key"]) == (2, "model")
    assert Report.of(repository.report().warnings).ok


class TestSettings:
    def test_invalid_yaml_is_reported_with_its_line_and_tasks_are_read_all_the_same(
        self, repository: Repository
    ) -> None:
        repository.write("cat-herder.yaml", "model: a\n\tb: c\n").write("cat-herder-tasks/a.md", "\n")
        told = repository.told()
        assert told[0].startswith("E cat-herder.yaml:2: there is a tab")
        assert told[1:] == ["E cat-herder-tasks/a.md:2: the task has no text"]

    @pytest.mark.parametrize("name", ["cat-herder.yml", ".cat-herder.yaml"])
    def test_a_file_of_another_name_is_not_read_in_silence(self, repository: Repository, name: str) -> None:
        repository.write(name, "model: sonnet\n")
        assert repository.told() == [
            f"E {name}:None: this file is not read; its name must be cat-herder.yaml"
        ]

    def test_an_old_config_is_pointed_at_until_it_is_imported(self, repository: Repository) -> None:
        repository.write("cat-herder.config.js", "module.exports = {}")
        (told,) = repository.told()
        assert "init_project --import cat-herder.config.js" in told
        repository.write("cat-herder.yaml", "")
        assert repository.told() == []

    def test_a_link_is_an_error_since_tasks_would_not_see_it(self, repository: Repository) -> None:
        repository.write("real.yaml", "")
        (repository.root / "cat-herder.yaml").symlink_to("real.yaml")
        assert repository.told() == [
            "E cat-herder.yaml:None: there is a link in the way; tasks do not follow links to find this file"
        ]

    def test_binary_text_is_reported_with_its_line(self, repository: Repository) -> None:
        repository.write("cat-herder.yaml", b"model: sonnet\n\xff\n")
        assert repository.told() == ["E cat-herder.yaml:2: this is not UTF-8 text"]


class TestPrompts:
    def test_p2_a_missing_prompt_names_both_places(self, repository: Repository) -> None:
        repository.pipeline("{name: lint, command: lint-it}")
        (told,) = repository.told()
        assert told.startswith('E cat-herder.yaml:3: pipelines.default[0].command is "lint-it"; ')
        assert ".claude/commands/lint-it.md" in told
        assert all(path.stem in told for path in (PROMPTS / "steps").glob("*.md"))
        repository.write(".claude/commands/lint-it.md", "Lint.\n")
        assert repository.told() == []

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            (b"\n\n", "1: there are no instructions in this file"),
            (b"---\nmodel: x\n---\n", "1: there are no instructions in this file"),
            (b"Plan.\n\xff", "2: this is not UTF-8 text"),
            (b"Plan.\n\n\0", "3: there is a NUL character"),
        ],
    )
    def test_p2_a_repositorys_own_prompt_must_be_usable(
        self, repository: Repository, text: bytes, fault: str
    ) -> None:
        """The defaults use plan-task too, so that this holds without a cat-herder.yaml."""
        repository.write(".claude/commands/plan-task.md", text)
        assert repository.told() == [f"E .claude/commands/plan-task.md:{fault}"]

    def test_p2_a_prompt_behind_a_link_that_stays_inside_is_read(self, repository: Repository) -> None:
        repository.write("shared/plan-task.md", "Plan.\n")
        repository.write("shared/implement.md", "")
        (repository.root / ".claude").mkdir()
        (repository.root / ".claude" / "commands").symlink_to("../shared")
        assert repository.told() == [
            "E .claude/commands/implement.md:1: there are no instructions in this file"
        ]

    def test_a_prompt_behind_a_link_that_leads_out_is_an_error(self, repository: Repository) -> None:
        (repository.root / ".claude" / "commands").mkdir(parents=True)
        (repository.root / ".claude" / "commands" / "plan-task.md").symlink_to("/etc/hostname")
        (told,) = repository.told()
        assert told.startswith("E .claude/commands/plan-task.md:None: there is a link in the way")

    def test_r5_what_claude_code_would_put_into_a_command_is_said(self, repository: Repository) -> None:
        place = ".claude/commands/plan-task.md"
        front = "---\nmodel: opus\ndescription: Plans.\n---\n"
        repository.write(place, f"{front}Plan $ARGUMENTS.\n\nState: !`git status`\n@docs/a.md\n")
        assert repository.told() == [
            f"H {place}:2: `model` of the front matter is not used; set `model` of the step",
            f"W {place}:5: $ARGUMENTS is not replaced: the task stands in the prompt by itself",
            f"W {place}:7: !`git status` is not run: agents read it as it stands",
            f"H {place}:8: @docs/a.md is not put in: agents have to read the file themselves",
        ]

    def test_r5_instructions_that_agents_do_not_get_are_said(self, repository: Repository) -> None:
        repository.write("docs/style.md", "@./gone\n")
        repository.write(
            "CLAUDE.md",
            "@docs/style.md and @~/mine.md, @../other.md; not `@code.md`, not @types/node.\n@gone.md\n",
        )
        (repository.root / ".claude").mkdir()
        (repository.root / ".claude" / "CLAUDE.md").symlink_to("/etc/hostname")
        assert repository.told() == [
            "W .claude/CLAUDE.md:None: is not read: this link leads out of the repository",
            "W CLAUDE.md:1: @~/mine.md is not read: it is outside of the repository",
            "W CLAUDE.md:1: @../other.md is not read: it is outside of the repository",
            "W CLAUDE.md:2: @gone.md is not read: there is no such file",
            "W docs/style.md:1: @./gone is not read: there is no such file",
        ]

    @pytest.mark.parametrize(
        ("written", "cut"),
        [
            ("command: fix-bugs # the usual way", ""),
            ("timeout: 60 #seconds", ""),
            ("model: opus", ""),
            ('check: {type: shell, command: "echo # x"}', ""),
            ("name: Fix #12", "#12"),
            ('name: echo "a # b"', '# b"'),
        ],
    )
    def test_p1_a_value_that_ends_at_a_comment_is_said(
        self, repository: Repository, written: str, cut: str
    ) -> None:
        """YAML takes ` #` for the beginning of a comment, without a word."""
        repository.write("cat-herder-tasks/1.md", f"---\n{written}\n---\n# Task\n")
        told = [one for one in repository.told() if "a comment for YAML" in one]
        assert len(told) == bool(cut) and all(f"“{cut}”" in one for one in told)

    def test_a_command_that_is_not_a_name_is_reported_once(self, repository: Repository) -> None:
        repository.pipeline("{name: a, command: ../../etc/passwd}")
        (told,) = repository.told()
        assert told.startswith("E cat-herder.yaml:3: pipelines.default[0].command must be letters, digits")


class TestIntro:
    @pytest.fixture
    def intro(self, repository: Repository, tmp_path: Path) -> Path:
        repository.prompts = tmp_path / "prompts"
        shutil.copytree(PROMPTS, repository.prompts)
        return repository.prompts / "interaction-intro.md"

    def test_h2_all_faults_of_the_instructions_for_asking_are_reported(
        self, repository: Repository, intro: Path
    ) -> None:
        text = intro.read_text()
        lines = text.splitlines()
        low = lines.index("## LOW") + 1
        intro.write_text(text.replace("## HIGH", "## HIHG").replace("## LOW", "## LOW\n{{numbre}}"))
        high = lines.index("## HIGH") + 2
        assert sorted(repository.told()) == sorted(
            [
                f"E {intro}:{high}: the section HIHG is not known; known are: COMMON, LOW, MEDIUM, HIGH, "
                "LEVEL 1, LEVEL 2, LEVEL 3, LEVEL 4, LEVEL 5",
                f"E {intro}:None: the section HIGH is missing",
                f"E {intro}:{low + 1}: the section LOW has the unknown placeholder {{{{numbre}}}}",
            ]
        )

    def test_h2_an_empty_section_and_a_missing_number_are_reported(
        self, repository: Repository, intro: Path
    ) -> None:
        text = "".join(
            f"## {name}\n\nText.\n\n"
            for name in ("COMMON", "LOW", "MEDIUM", "HIGH", *(f"LEVEL {level}" for level in range(1, 6)))
        )
        intro.write_text(text.replace("## LOW\n\nText.", "## LOW\n\n<!--\nlater\n-->"))
        assert repository.told() == [
            f"E {intro}:1: the section COMMON lacks {{{{threshold}}}}, the place for the number",
            f"E {intro}:5: the section LOW is empty",
        ]

    def test_h2_a_missing_file_is_reported(self, repository: Repository, intro: Path) -> None:
        intro.unlink()
        (told,) = repository.told()
        assert told.startswith(f"E {intro}:None: the file cannot be read")


class TestTasks:
    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            (b"", "1: the task has no text"),
            (b"---\npipeline: default\n---\n\n", "5: the task has no text"),
            (b"---\n- a\n---\nDo.\n", "2: the file must be a mapping of keys to values"),
            (b"---\npipeline: default\nDo.\n", "1: the front matter that begins here is never closed"),
            (
                b"---\ninteractionThreshold: high\n---\nDo.\n",
                "2: interactionThreshold must be a whole number",
            ),
            (b"---\n\nautonomyLevel: 3\n---\nDo.\n", "3: autonomyLevel is not a known key; did you mean"),
            (b"One\n\x00", "2: there is a NUL character"),
            (b"One\nTwo\n\xfe\xff", "3: this is not UTF-8 text"),
        ],
    )
    def test_r5_a_task_file_that_cannot_be_used(
        self, repository: Repository, text: bytes, fault: str
    ) -> None:
        repository.write("cat-herder-tasks/deep/01-a.md", text)
        (told,) = repository.told()
        assert told.startswith(f"E cat-herder-tasks/deep/01-a.md:{fault}")

    def test_p3_its_pipeline_is_looked_up_even_if_another_key_is_wrong(self, repository: Repository) -> None:
        repository.write("cat-herder-tasks/a.md", "---\nnope: 1\nmodel: llama\npipeline: slow\n---\nDo.\n")
        assert [told.split(";")[0] for told in repository.told()] == [
            "E cat-herder-tasks/a.md:2: nope is not a known key",
            'W cat-herder-tasks/a.md:3: model is "llama", which is no model of a known family',
            'E cat-herder-tasks/a.md:4: pipeline is "slow", which is no pipeline of cat-herder.yaml',
        ]

    def test_what_begins_with_an_underscore_or_a_dot_is_no_task(self, repository: Repository) -> None:
        for name in ("_draft.md", "_later/a.md", ".hidden.md", "notes.txt"):
            repository.write(f"cat-herder-tasks/{name}", "")
        assert repository.told() == []

    def test_r5_folders_pipes_and_links_are_no_task_files(self, repository: Repository) -> None:
        folder = repository.root / "cat-herder-tasks"
        (folder / "folder.md").mkdir(parents=True)
        os.mkfifo(folder / "pipe.md")
        (folder / "link.md").symlink_to("/etc/passwd")
        assert repository.told() == [
            "E cat-herder-tasks/folder.md:None: this is not a file",
            "E cat-herder-tasks/link.md:None: there is a link in the way; "
            "tasks do not follow links to find this file",
            "E cat-herder-tasks/pipe.md:None: this is not a file",
        ]

    def test_the_folder_must_be_one_of_the_repository(self, repository: Repository, tmp_path: Path) -> None:
        repository.write("cat-herder.yaml", "\ntaskFolder: tasks\n")
        assert repository.told() == ['W cat-herder.yaml:2: taskFolder is "tasks", which does not exist yet']
        (repository.root / "tasks").symlink_to(tmp_path)
        (tmp_path / "outside.md").write_text("")
        assert repository.told() == [
            'E cat-herder.yaml:2: taskFolder is "tasks", which leads out of the repository'
        ]
        (repository.root / "tasks").unlink()
        repository.write("tasks", "")
        assert repository.told() == ['E cat-herder.yaml:2: taskFolder is "tasks", which is no folder']


class TestModelsAndTools:
    @pytest.mark.parametrize(
        "name",
        [
            "sonnet",
            "opus[1m]",
            "claude-opus-4-1",
            "claude-sonnet-4-5-20250929",
            "claude-3-5-haiku-20241022",
            "claude-haiku-4-5",
            "us.anthropic.claude-sonnet-4-20250514-v1:0",
            "claude-opus-4@20250514",
            "arn:aws:bedrock:eu-west-1:1:inference-profile/x",
        ],
    )
    def test_known_families_of_models(self, repository: Repository, name: str) -> None:
        repository.write("cat-herder.yaml", f'model: "{name}"\n')
        assert repository.told() == []

    @pytest.mark.parametrize("name", ["gpt-5", "claude-sonet-4", "claude", "sonnet4"])
    def test_an_unknown_model_is_a_warning(self, repository: Repository, name: str) -> None:
        repository.pipeline(f"{{name: a, command: implement, model: {name}}}")
        (told,) = repository.told()
        assert told.startswith(f'W cat-herder.yaml:3: pipelines.default[0].model is "{name}"')

    @pytest.mark.parametrize(
        "rule",
        ["Read", "Bash(npm test:*)", "Edit(src/**)", "mcp__db__query", "mcp__db__*", "WebFetch(domain:a.b)"],
    )
    def test_right_permissions(self, repository: Repository, rule: str) -> None:
        repository.pipeline(f"{{name: a, command: implement, allowedTools: ['{rule}']}}")
        assert repository.told() == []

    @pytest.mark.parametrize(
        ("rule", "fault"),
        [
            ("Bash(npm test", "must be a tool or Tool(what it may do)"),
            ("Bash npm", "must be a tool or Tool(what it may do)"),
            ("Bash()", "has nothing between its parentheses"),
            ("Bash(npm:*test)", "has ':*' in the middle"),
            ("bash(ls)", 'is "bash(ls)", and there is no tool "bash"; did you mean "Bash(ls)"?'),
            ("Wriet", 'is "Wriet", and there is no tool "Wriet"; did you mean "Write"?'),
            ("Bash*", "has '*' behind the name of a tool"),
        ],
    )
    def test_a_malformed_permission_is_an_error(self, repository: Repository, rule: str, fault: str) -> None:
        repository.pipeline(f"{{name: a, command: implement, allowedTools: [Read, '{rule}']}}")
        (told,) = repository.told()
        assert told.startswith(f"E cat-herder.yaml:3: pipelines.default[0].allowedTools[1] {fault}")

    @pytest.mark.parametrize(
        ("pattern", "fault"),
        [
            ("bash(git push*)", 'and there is no tool "bash"; did you mean "Bash(git push*)"?'),
            ("Bush(x)", 'and there is no tool "Bush"; did you mean "Bash"?'),
            ("WEBFETCH", 'did you mean "WebFetch"?'),
            ("Xyzzy*(x)", '"Xyzzy*" stands for no tool'),
            ("mcp_db__query", 'names of MCP tools begin with "mcp__"'),
            ("Nothing", 'there is no tool "Nothing"'),
        ],
    )
    def test_a_pattern_for_a_tool_that_does_not_exist_is_an_error(
        self, repository: Repository, pattern: str, fault: str
    ) -> None:
        """It would never match, and everybody would think that it does."""
        repository.write(
            "cat-herder.yaml",
            f"askBefore:\n  - Read\n  - '{pattern}'\npipelines:\n  default:\n    - name: do\n"
            f"      command: implement\n      askBefore: ['{pattern}']\n",
        )
        own, of_step = repository.told()
        assert own.startswith("E cat-herder.yaml:3: askBefore[1] is ") and own.endswith(fault)
        assert of_step.startswith("E cat-herder.yaml:8: pipelines.default[0].askBefore[0] is ")
        assert of_step.endswith(fault)

    @pytest.mark.parametrize(
        "pattern", ["*", "Web*", "mcp__*", "mcp__db__query(*drop*)", "*Edit(a)", "Agent"]
    )
    def test_a_pattern_may_stand_for_several_tools_and_for_those_of_mcp_servers(
        self, repository: Repository, pattern: str
    ) -> None:
        repository.write("cat-herder.yaml", f"askBefore: ['{pattern}']\n")
        assert repository.told() == []


class TestPermissionToAsk:
    def test_h12_without_a_threshold_nothing_is_asked_for(self, repository: Repository) -> None:
        repository.write("cat-herder.yaml", "interactionThreshold: 0\n")
        assert repository.told(threshold=3) == []

    @pytest.mark.parametrize(
        ("name", "text", "why"),
        [
            (
                "cat-herder.yaml",
                "\ninteractionThreshold: 2\n",
                "interactionThreshold is 2 in cat-herder.yaml:2",
            ),
            (
                "cat-herder-tasks/a.md",
                "---\ninteractionThreshold: 5\n---\nDo.\n",
                "interactionThreshold is 5 in cat-herder-tasks/a.md:2",
            ),
            ("README", "", "CATHERDER_INTERACTION_THRESHOLD is 1"),
        ],
    )
    def test_h12_a_threshold_anywhere_wants_the_permission(
        self, repository: Repository, name: str, text: str, why: str
    ) -> None:
        repository.write(name, text)
        assert repository.told(threshold=1) == []  # the portal does not need the file
        repository.write(".claude/settings.json", "{}")
        report = repository.report(threshold=1)
        (finding,) = report.findings
        assert (finding.file, finding.fixable) == (".claude/settings.json", True)
        assert finding.problem.sentence.endswith(
            f"without which Claude Code run by hand cannot ask, but {why}"
        )
        assert (report.faults, report.hints, report.ok) == ((), (finding,), True)
        repository.write(".claude/settings.json", ASKING)
        assert repository.told(threshold=1) == []

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("{}", '1: the file lacks "Bash(cat-herder ask:*)", without which Claude Code'),
            ('{\n"permissions": {}}', "2: permissions lacks"),
            ('{\n"permissions": {\n\n"allow": ["Read"]}}', "4: permissions.allow lacks"),
            ('{\n"permissions": []}', "2: permissions must be an object"),
            ('{"permissions": {\n"allow": [1]}}', "2: permissions.allow must be a list of texts"),
            ("[]", "1: the file must be a JSON object"),
            ('{\n  "a": 1,\n}', "3: this is not JSON: "),
            (
                ASKING.replace("]\n", '],\n"deny": ["Bash"]\n'),
                '4: permissions.deny has "Bash", which forbids Claude Code run by hand to ask',
            ),
        ],
    )
    def test_h12_what_the_file_lacks_is_reported_with_its_line(
        self, repository: Repository, text: str, fault: str
    ) -> None:
        repository.write("cat-herder.yaml", "interactionThreshold: 3\n").write(".claude/settings.json", text)
        (told,) = repository.told()
        assert told.startswith(f"H .claude/settings.json:{fault}")


class TestChecks:
    """P5: what a check runs exists."""

    @pytest.mark.parametrize(
        "command",
        [
            "git diff --exit-code",
            "A=1 git status && ! git diff | sh -s",
            "if git diff; then echo yes; else exit 1; fi",
            "for f in a b; do git add $f; done",
            "[ -f a ] && test -d b || (cd c && git log)",
            "$RUNNER all",
            "cat <<EOF\nit's\nEOF",
            "echo 'no-such; program' \"a && b\" # no-such",
            "git log 2>&1 >no-such | sh",
            "echo \"$(no-such 'x')\"",
            "git status && ./built-by-then",
            "'unclosed",
        ],
    )
    def test_what_can_be_run_or_is_undecidable_is_no_fault(
        self, repository: Repository, command: str
    ) -> None:
        repository.write(
            "cat-herder.yaml",
            "pipelines: {a: [{name: a, command: self, check: {type: shell, command: "
            + json.dumps(command)
            + "}}]}",
        )
        assert repository.told() == []

    @pytest.mark.parametrize(
        ("command", "fault"),
        [
            ("no-such --all", 'E {} runs "no-such", which is no program on this machine\'s PATH'),
            ("A=b 'no such'", 'E {} runs "no such", which is no program'),
            ("git log && no-such", 'W {} runs "no-such", which is no program'),
            ("./no-such.sh", 'E {} runs "./no-such.sh", which does not exist in the repository'),
            ("/no/such", 'E {} runs "/no/such", which does not exist on this machine'),
            ("../other/run", 'E {} runs "../other/run", which leads out of the repository'),
            ("./plain.sh", 'E {} runs "./plain.sh", which is no executable file'),
            ("plain.sh", 'E {} runs "plain.sh", which is no program on this machine\'s PATH; for the file'),
        ],
    )
    def test_a_program_that_is_not_there(self, repository: Repository, command: str, fault: str) -> None:
        (told,) = repository.shell(command).write("plain.sh", "").told()
        key = "cat-herder.yaml:6: pipelines.default[0].check.command"
        assert told.startswith(fault.format(key))

    def test_what_a_setup_may_make_is_no_error(self, repository: Repository) -> None:
        """A virtual environment is in no repository, and checks run after the setup that makes it."""
        repository.write(
            "cat-herder.yaml",
            "setup: [python3 -m venv .venv]\npipelines: {a: [{name: a, command: self, check: "
            "[{type: shell, command: .venv/bin/python test.py}, {type: shell, command: no-such}]}]}",
        )
        (told,) = repository.told()
        assert told.startswith('W cat-herder.yaml:2: pipelines.a[0].check[1].command runs "no-such"')

    def test_each_check_of_a_list_has_its_own_line(self, repository: Repository) -> None:
        repository.write(
            "cat-herder.yaml",
            "pipelines:\n  a:\n  - name: a\n    command: implement\n    check:\n"
            "    - {type: none}\n    - type: shell\n      command: no-such\n",
        )
        (told,) = repository.told()
        assert told.startswith("E cat-herder.yaml:8: pipelines.a[0].check[1].command runs")

    def test_a_file_through_a_link_is_outside(self, repository: Repository, tmp_path: Path) -> None:
        (repository.root / "out").symlink_to(tmp_path)
        repository.pipeline("{name: a, command: implement, check: {type: fileExists, path: out/x}}")
        (told,) = repository.told()
        assert told.startswith(
            'E cat-herder.yaml:3: pipelines.default[0].check.path is "out/x", which leads out'
        )

    @pytest.mark.parametrize(
        "command",
        [
            "npm test",
            "npm run lint:all -- --fix",
            "npm run --silent test",
            "yarn test",
            "yarn tsc",
            "pnpm run test",
            "npm ci && npm t",
            "npm --prefix web run build",
            "cd web && npm run build",
            "npm run x --workspace=web",
            "npm run $X",
        ],
    )
    def test_scripts_that_are_there(self, repository: Repository, command: str) -> None:
        repository.write("package.json", '{"scripts": {"test": "x", "lint:all": "y"}}')
        repository.write("web/package.json", '{"scripts": {"build": "x"}}')
        repository.write("node_modules/.bin/tsc", "")
        assert repository.shell(command).told() == []

    @pytest.mark.parametrize(
        ("command", "fault"),
        [
            (
                "npm run tset",
                'runs the script "tset", which package.json does not have; its scripts are: test',
            ),
            ("npm run-script tset", 'its scripts are: test, build; did you mean "test"?'),
            ("yarn lint", 'runs the script "lint", which package.json does not have'),
            ("pnpm run lint", 'runs the script "lint"'),
            ("cd web && npm test", 'runs the script "test" with npm, but there is no web/package.json'),
            ("npm --prefix=web test", 'runs the script "test" with npm, but there is no web/package.json'),
        ],
    )
    def test_scripts_that_are_not(self, repository: Repository, command: str, fault: str) -> None:
        repository.write("package.json", '{"scripts": {"test": "x", "build": "y"}}')
        (told,) = repository.shell(command).told()
        assert "cat-herder.yaml:6: pipelines.default[0].check.command" in told
        assert fault in told

    def test_a_linked_package_json_is_as_good_as_any(self, repository: Repository) -> None:
        repository.write("web/package.json", '{"scripts": {"test": "x"}}').shell("npm test")
        (repository.root / "package.json").symlink_to("web/package.json")
        assert repository.told() == []

    def test_a_broken_package_json_is_reported_once_at_its_line(self, repository: Repository) -> None:
        repository.write("package.json", '{\n  "scripts": {\n    "test": }\n}').pipeline(
            "{name: a, command: implement, check: {type: shell, command: npm test}}",
            "{name: b, command: implement, check: {type: shell, command: npm run x}}",
        )
        (told,) = repository.told()
        assert told.startswith("E package.json:3: this is not JSON")

    @pytest.mark.parametrize(
        ("command", "fault"),
        [
            ("make test", None),
            ("make -j 4 -C sub all V=1", None),
            ("make README", None),
            ("make tset", 'makes "tset", which is no target of Makefile; did you mean "test"?'),
            ("make -C sub test", 'makes "test", which is no target of sub/makefile'),
            ("make -f other.mk", "runs make, but there is no other.mk"),
            ("make -C web", "runs make, but there is no Makefile"),
        ],
    )
    def test_targets_of_make(self, repository: Repository, command: str, fault: str | None) -> None:
        repository.write("Makefile", "V := 1\n.PHONY: test\nlint test: README\n\tgit diff\n")
        repository.write("sub/makefile", "all:\n").write("README", "")
        told = repository.shell(command).told()
        if fault is None:
            assert told == []
        else:
            assert f"W cat-herder.yaml:6: pipelines.default[0].check.command {fault}" in told[0]

    def test_a_makefile_with_more_than_plain_targets_is_believed(self, repository: Repository) -> None:
        repository.write("Makefile", "include other.mk\n").shell("make anything")
        assert repository.told() == []


@pytest.mark.parametrize(("written", "warned"), [("false", True), ("true", False)])
def test_working_on_the_projects_own_branch_is_warned_of(
    repository: Repository, written: str, warned: bool
) -> None:
    repository.write("cat-herder.yaml", f"autoCommit: true\nmanageGitBranch: {written}\n")
    told = [line for line in repository.told() if "manageGitBranch is false" in line]
    assert len(told) == warned
    assert all(line.startswith("W cat-herder.yaml:2: manageGitBranch is false: agents work") for line in told)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("https://calendar.example.org/a.ics", ""),
        ("on-call.ics", ""),
        ("missing.ics", "does not exist yet"),
        ("docs", "no regular file"),
        ("linked.ics", "no regular file"),
    ],
)
def test_the_on_call_calendar_is_a_file_of_the_repository(
    repository: Repository, source: str, fault: str
) -> None:
    """Q1"""
    repository.write("on-call.ics", "x").write("docs/a.md", "x")
    (repository.root / "linked.ics").symlink_to("on-call.ics")
    repository.write("cat-herder.yaml", f"onCall: {source}\n")
    found = [one for one in repository.told() if "onCall" in one]
    assert len(found) == bool(fault) and all(fault in one and one.startswith("W ") for one in found)
