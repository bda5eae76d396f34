"""Labels of workers, and which of them a step needs (M4).

A toolchain that a worker has, or a task needs, is a label, too, in a form that nobody can enter:
`toolchain:rust`. So are Git LFS and network isolation. A worker that lacks one leaves the task to others, as
with any label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_LABELS = 20
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
#: How they are stored in a column: in order, with commas between them.
STORED_LENGTH = MOST_LABELS * 42

Labels = frozenset[str]
_TOOLCHAIN = "toolchain:"
#: What a machine can do.
GIT_LFS, OFFLINE = "machine:git-lfs", "machine:offline"
_MACHINE = {
    GIT_LFS: "Git LFS (git-lfs, and lfs in CATHERDER_GIT_FILTERS)",
    OFFLINE: "network isolation",
}


def label_fault(label: str) -> str:
    """Return what is wrong with a label, as a sentence without its subject; "" if it is valid."""
    if _LABEL.fullmatch(label):
        return ""
    return "must be small letters, digits, '.', '_' and '-' (40 at most), such as gpu"


def labels_from_text(text: str) -> tuple[str, ...]:
    """Return labels that a person entered, with commas or blanks between them. Raises ValueError."""
    labels = tuple(dict.fromkeys(part for part in re.split(r"[,\s]+", text) if part))
    for label in labels:
        if fault := label_fault(label):
            raise ValueError(f"{fault}, not {label[:60]!r}")
    if len(labels) > MOST_LABELS:
        raise ValueError(f"must be at most {MOST_LABELS} labels, not {len(labels)}")
    return labels


def labels_as_stored(labels: Iterable[str]) -> str:
    return ",".join(sorted(set(labels)))


def labels_of(stored: str) -> Labels:
    return frozenset(stored.split(",")) if stored else frozenset()


def toolchain_labels(names: Iterable[str]) -> Labels:
    """Return the labels that stand for these toolchains."""
    return frozenset(_TOOLCHAIN + name for name in names)


def labels_needed(runs_on: str, toolchains: str, *, lfs: bool = False, offline: bool = False) -> Labels:
    """Return what a worker must have for a step: both columns have names with commas between them.

    `offline`: the step, or the setup of its workspace, must run without the machine's network.
    """
    machine = {label for label, is_needed in ((GIT_LFS, lfs), (OFFLINE, offline)) if is_needed}
    return labels_of(runs_on) | toolchain_labels(labels_of(toolchains)) | machine


def labels_and_toolchains(labels: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the labels that people have given, and the names of the toolchains."""
    given = sorted(label for label in labels if label not in _MACHINE)
    toolchains = [label.removeprefix(_TOOLCHAIN) for label in given if label.startswith(_TOOLCHAIN)]
    return [label for label in given if not label.startswith(_TOOLCHAIN)], toolchains


def _toolchain_in_words(name: str) -> str:
    if name.startswith(("/", "~/")):
        return f"the folder {name}"
    return f"the toolchain {name}"


def labels_in_words(labels: Iterable[str]) -> str:
    """Return the labels for a sentence: “gpu, the toolchain rust and the folder /srv/datasets”."""
    labels = frozenset(labels)
    given, toolchains = labels_and_toolchains(labels)
    machine = [words for label, words in _MACHINE.items() if label in labels]
    *most, last = [*given, *map(_toolchain_in_words, toolchains), *machine]
    return f"{', '.join(most)} and {last}" if most else last
