"""git for the portal: sources, the portal's repositories, clones of tasks, recordings and diffs."""

from tasks_app.git.clone import Workspace, branch_name
from tasks_app.git.difference import ChangedFile, changed_files, diff, patch
from tasks_app.git.files import (
    TEXT_BYTES,
    TreeFile,
    blob_bytes,
    blob_contents,
    blob_difference,
    blob_sizes,
    blobs_shown_as,
    committed_blob,
    committed_blobs,
    committed_bytes,
    committed_names,
    committed_text,
    committed_tree,
    has_line_with_prefix,
    replace_file,
    root_names,
    working_names,
    working_text,
)
from tasks_app.git.moved_lines import MovedFile, moved_files
from tasks_app.git.recording import AUTHOR, EMPTY_LIST, Snapshot, ignored_files
from tasks_app.git.repository import CommitSummary, Fetched, Repository
from tasks_app.git.source import InspectedSource, has_branch, inspect_source

__all__ = [
    "AUTHOR",
    "EMPTY_LIST",
    "TEXT_BYTES",
    "ChangedFile",
    "CommitSummary",
    "Fetched",
    "InspectedSource",
    "MovedFile",
    "Repository",
    "Snapshot",
    "TreeFile",
    "Workspace",
    "blob_bytes",
    "blob_contents",
    "blob_difference",
    "blob_sizes",
    "blobs_shown_as",
    "branch_name",
    "changed_files",
    "committed_blob",
    "committed_blobs",
    "committed_bytes",
    "committed_names",
    "committed_text",
    "committed_tree",
    "diff",
    "has_branch",
    "has_line_with_prefix",
    "ignored_files",
    "inspect_source",
    "moved_files",
    "patch",
    "replace_file",
    "root_names",
    "working_names",
    "working_text",
]
