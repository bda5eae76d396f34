"""Where guests run: agents, checks and their git, in bubblewrap if the machine has it.

The network is shared with the machine unless a step says otherwise, and with it services on loopback: those
must ask for a password themselves.
"""

from tasks_app.sandbox.bubblewrap import (
    FORWARDED_PORT,
    Sandbox,
    SandboxedCommand,
    SandboxMode,
    detect,
    forwarded,
)
from tasks_app.sandbox.environment import clean_env
from tasks_app.sandbox.limits import TEMPORARY_FILES, Held, Limits, delegated_group, divided
from tasks_app.sandbox.process import Finished, killed_by, run
from tasks_app.sandbox.watch import Watch

__all__ = [
    "FORWARDED_PORT",
    "TEMPORARY_FILES",
    "Finished",
    "Held",
    "Limits",
    "Sandbox",
    "SandboxMode",
    "SandboxedCommand",
    "Watch",
    "clean_env",
    "delegated_group",
    "detect",
    "divided",
    "forwarded",
    "killed_by",
    "run",
]
