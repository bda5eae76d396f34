"""The sandbox for agents, checks and git in workspaces: bubblewrap, if the machine has it.

Unless a step says otherwise, sandboxed processes share the machine's network, and with it services on
loopback: these must ask for a password themselves.
"""

from tasks_app.sandbox.bubblewrap import (
    FORWARDED_PORT,
    Sandbox,
    SandboxedCommand,
    SandboxMode,
    detect,
    with_forwarded_port,
)
from tasks_app.sandbox.limits import TEMPORARY_FILES, EnforcedLimit, Limits, delegated_cgroup, prepare_cgroup
from tasks_app.sandbox.mounts import UNCHANGED, Placement
from tasks_app.sandbox.process_environment import clean_env
from tasks_app.sandbox.run_command import Finished, killed_by, run
from tasks_app.sandbox.watch import Watch
