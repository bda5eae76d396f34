"""Checks of a step: their kinds, and running them."""

from tasks_app.engine.checks.kinds import Check, CheckReport, FileExists, NoCheck, Shell
from tasks_app.engine.checks.running import run_checks
