"""Validate a repository before tasks run in it, and report all errors with file, line and key.

Nothing of the repository is run. Free of Django and of the database.
"""

from tasks_app.config.validation.findings import Finding, Report, Severity
from tasks_app.config.validation.git_state import is_repository
from tasks_app.config.validation.permission import SETTINGS_FILE, grant_permission
from tasks_app.config.validation.repository import laid_out, may_ask, validate, validate_commit
from tasks_app.config.validation.repository_context import RepositoryContext
