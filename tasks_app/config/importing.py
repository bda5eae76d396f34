"""Import a `cat-herder.config.js` as a `cat-herder.yaml` (P1)."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tasks_app.config.faults import did_you_mean, shown
from tasks_app.config.pipeline import ProjectFile, StepConfig
from tasks_app.config.reading import file_keys
from tasks_app.core.errors import BadInput
from tasks_app.sandbox import Finished, Sandbox, run
from tasks_app.sandbox.process_environment import search_path

SECONDS = 15.0
_OUTPUT_BYTES = 1_000_000
_MEMORY = "--max-old-space-size=256"
_SCRIPT = Path(__file__).with_name("exported.mjs")

#: Keys of the old file that have no meaning here, and why.
_DROPPED = {
    "statePath": "state is kept in the portal's database",
    "logsPath": "logs are kept in the portal's database",
    "structureIgnore": "the agent looks at the repository by itself",
}
_CHECK_KEYS = {"none": (), "fileExists": ("path",), "shell": ("command", "expect", "timeout")}


@dataclass(frozen=True)
class Exported:
    """What a JavaScript file exports, as plain values; `dropped` names values that are not plain."""

    values: Mapping[str, Any]
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """The settings under the keys of cat-herder.yaml; `notes` say what was not carried over."""

    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def read_exported(path: Path, *, repository: Path, sandbox: Sandbox, timeout: float = SECONDS) -> Exported:
    """Return what the JavaScript file at `path` exports, CommonJS or ES module; `timeout` in seconds.

    The file is a program: it is run by node in `sandbox`, where it sees `repository` (to read) and nothing
    else of the machine. Raises BadInput if there is no node, or if the file throws, does not end, or
    exports no settings.
    """
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    node = shutil.which("node", path=search_path())
    if node is None:
        raise BadInput("node is needed to read this file, and it is not installed", where=str(path))
    mark = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="cat-herder-import-") as name:
        folder = Path(name).resolve()
        script = _SCRIPT.read_text(encoding="utf-8")
        argv = [node, _MEMORY, "--input-type=module", "-e", script, "--", str(path), str(folder), mark]
        command = sandbox.command(argv, workspace=folder, home=folder, env={}, readable=[repository])
        done = run(command, timeout=timeout, output_limit=_OUTPUT_BYTES)
    return _exported(_printed_json(done, mark, where=path.name, timeout=timeout), where=path.name)


def _printed_json(done: Finished, mark: str, *, where: str, timeout: float) -> dict[str, Any]:
    if done.timed_out:
        raise BadInput(f"it did not end within {timeout:g} seconds", where=where)
    marked = [line for line in done.output.splitlines() if line.startswith(mark)]
    if not marked:
        last = done.output.strip().splitlines()[-1:] or ["it said nothing"]
        reason = f"it ended (exit {done.exit_code}) before its export could be read: {shown(last[0])}"
        raise BadInput(reason, where=where)
    try:
        outcome = json.loads(marked[-1].removeprefix(mark))
    except ValueError as error:
        raise BadInput("what it printed cannot be understood", where=where) from error
    if not isinstance(outcome, dict):
        raise BadInput("what it printed cannot be understood", where=where)
    return outcome


def _exported(outcome: dict[str, Any], *, where: str) -> Exported:
    if "error" in outcome:
        line = outcome.get("line")
        place = f"{where}:{line}" if line else where
        raise BadInput(f"it fails with {outcome.get('name')}: {outcome['error']}", where=place)
    values = outcome.get("values")
    if not isinstance(values, dict):
        raise BadInput(f"it must export an object with settings, not {outcome.get('kind')}", where=where)
    if not values:
        raise BadInput("it exports nothing", where=where)
    return Exported(values, tuple(map(str, outcome.get("dropped", ()))))


def convert(exported: Exported, *, repository: Path) -> Imported:
    """Return the settings of an old file under the keys of cat-herder.yaml, wrong values included."""
    conversion = _Conversion(repository)
    for place in exported.dropped:
        conversion.note(f"{place} is no plain value (a function, say)")
    return Imported(conversion.settings(exported.values), tuple(conversion.notes))


def to_yaml(imported: Imported, *, source: str) -> str:
    """Return the text of a cat-herder.yaml; its first lines say what was not carried over."""
    head = [f"# Settings of this repository for Cat Herder, imported from {source}."]
    if imported.notes:
        head += [
            "# Not carried over as it was:",
            *(f"#   {' '.join(note.split())}" for note in imported.notes),
        ]
    body = yaml.safe_dump(dict(imported.settings), sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(head) + "\n\n" + body


@dataclass
class _Conversion:
    """Converts the old settings, and collects notes on what was not carried over."""

    repository: Path
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def settings(self, old: Mapping[str, Any]) -> dict[str, Any]:
        known = file_keys(ProjectFile)
        new = {key: old[key] for key in known if key in old and key != "pipelines"}
        self._threshold(old, new)
        if isinstance(new.get("taskFolder"), str):
            new["taskFolder"] = self._inside(new["taskFolder"])
        for key in old:
            if key in _DROPPED:
                self.note(f"{key}: {_DROPPED[key]}")
            elif key not in (*known, "autonomyLevel", "steps"):
                self.note(f"{key} is not known here{did_you_mean(key, known)}")
        if (pipelines := self._pipelines(old)) is not None:
            new["pipelines"] = pipelines
        return new

    def _threshold(self, old: Mapping[str, Any], new: dict[str, Any]) -> None:
        level = old.get("autonomyLevel")
        if "autonomyLevel" not in old or level == old.get("interactionThreshold"):
            return
        if "interactionThreshold" in old:
            self.note(f"autonomyLevel {shown(level)}: interactionThreshold says something else, and counts")
        else:
            new["interactionThreshold"] = level

    def _inside(self, folder: str) -> str:
        """`./tasks/` and absolute paths within the repository, in the form that cat-herder.yaml has."""
        absolute = os.path.normpath(self.repository / folder)
        if Path(absolute).is_relative_to(self.repository):
            return os.path.relpath(absolute, self.repository)
        return folder

    def _pipelines(self, old: Mapping[str, Any]) -> Any:
        pipelines = old.get("pipelines")
        if pipelines is None and isinstance(old.get("steps"), list):
            self.note('steps became the pipeline "default"')
            pipelines = {"default": old["steps"]}
        if not isinstance(pipelines, dict):
            return pipelines
        return {name: self._steps(steps, f"pipelines.{name}") for name, steps in pipelines.items()}

    def _steps(self, steps: Any, place: str) -> Any:
        if isinstance(steps, dict) and isinstance(steps.get("steps"), list):
            steps = steps["steps"]
        if not isinstance(steps, list):
            return steps
        return [self._step(step, f"{place}[{index}]") for index, step in enumerate(steps)]

    def _step(self, old: Any, place: str) -> Any:
        if not isinstance(old, dict):
            return old
        known = file_keys(StepConfig)
        for key in old:
            if key not in known:
                self.note(f"{place}.{key} is not known here{did_you_mean(key, known)}")
        new = {key: old[key] for key in known if key in old}
        if "check" in new:
            new["check"] = self._import_checks(new["check"], f"{place}.check")
        if isinstance(new.get("fileAccess"), dict):
            new["fileAccess"] = self._only(new["fileAccess"], ("allowWrite",), f"{place}.fileAccess")
        return {key: value for key, value in new.items() if value is not None}

    def _import_checks(self, old: Any, place: str) -> Any:
        checks = old if isinstance(old, list) else [old]
        new = [made for index, one in enumerate(checks) for made in self._one_check(one, f"{place}[{index}]")]
        return new[0] if len(new) == 1 else new

    def _one_check(self, old: Any, place: str) -> Iterator[Any]:
        keys = _CHECK_KEYS.get(str(old.get("type"))) if isinstance(old, dict) else None
        if keys is None:
            yield old
            return
        check = self._only(old, ("type", *keys), place)
        # Several files in one check are several checks here.
        paths = check.get("path")
        yield from [{**check, "path": path} for path in paths] if isinstance(paths, list) else [check]

    def _only(self, old: dict[str, Any], known: tuple[str, ...], place: str) -> dict[str, Any]:
        for key in old:
            if key not in known:
                self.note(f"{place}.{key} is not known here{did_you_mean(key, known)}")
        return {key: old[key] for key in known if key in old}
