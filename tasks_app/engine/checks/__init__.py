"""Checks of a step: their kinds, and running them."""

from tasks_app.engine.checks.running import Check, CheckReport, FileExists, NoCheck, Shell, run_checks
