"""Where guests run: agents, checks and their git, in bubblewrap if the machine has it.

The network is shared with the machine, and with it abstract sockets and services on loopback: those
must ask for a password themselves.
"""

from tasks_app.jail.environment import clean_env
from tasks_app.jail.process import Finished, run
from tasks_app.jail.sandbox import Jail, JailedCommand, SandboxMode, detect

__all__ = ["Finished", "Jail", "JailedCommand", "SandboxMode", "clean_env", "detect", "run"]
