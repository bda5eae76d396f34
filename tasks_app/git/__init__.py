"""git for the portal: sources, the portal's repositories, clones of tasks, recordings and diffs."""

from tasks_app.git.clone import Workspace, branch_name
from tasks_app.git.difference import (
    STATUS_WORDS,
    ChangedFile,
    MovedFile,
    added_lines,
    changed_files,
    diff,
    moved_files,
    patch,
    sizes_of_changes,
)
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
    committed_text_behind_links,
    committed_tree,
    has_line_with_prefix,
    linked_text,
    paths_named,
    replace_file,
    root_names,
    working_names,
    working_text,
)
from tasks_app.git.recording import AUTHOR, EMPTY_LIST, Snapshot, ignored_files
from tasks_app.git.repository import CommitSummary, Fetched, Repository
from tasks_app.git.source import InspectedSource, has_branch, inspect_source
