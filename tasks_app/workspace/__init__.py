"""git, seen from the portal: sources, the portal's repository, tasks' clones, and what changed."""

from tasks_app.workspace.clone import Workspace, branch_name
from tasks_app.workspace.difference import ChangedFile, changed_files, diff, patch
from tasks_app.workspace.files import (
    TreeFile,
    blob_bytes,
    committed_names,
    committed_text,
    committed_tree,
    working_names,
    working_text,
)
from tasks_app.workspace.repository import CommitFacts, Repository
from tasks_app.workspace.source import SourceFacts, has_branch, inspect_source

__all__ = [
    "ChangedFile",
    "CommitFacts",
    "Repository",
    "SourceFacts",
    "TreeFile",
    "Workspace",
    "blob_bytes",
    "branch_name",
    "changed_files",
    "committed_names",
    "committed_text",
    "committed_tree",
    "diff",
    "has_branch",
    "inspect_source",
    "patch",
    "working_names",
    "working_text",
]
