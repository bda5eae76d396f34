"""Checks of a step: what they are and how they are run."""

from tasks_app.engine.checks.kinds import Check, CheckReport, FileExists, NoCheck, Shell
from tasks_app.engine.checks.running import run_checks

__all__ = ["Check", "CheckReport", "FileExists", "NoCheck", "Shell", "run_checks"]
