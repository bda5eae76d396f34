"""The launcher, which the SDK starts instead of the agent's program.

It is a separate program (`python -ISB launch.py ORDERS ARGUMENTS…`). It replaces the worker's environment,
which the SDK always passes on, by the listed one, makes sure that no other agent runs in the workspace, and
executes the sandboxed agent in its place. ORDERS is a JSON file {argv, env, inherit, lock}: `inherit` names
the variables that are taken from the SDK.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

PATIENCE = 10.0
BUSY = 75


def main(orders_path: str, arguments: list[str]) -> int:
    """Become the agent. Returns an exit code only if that fails."""
    with open(orders_path, encoding="utf-8") as file:  # noqa: PTH123
        orders = json.load(file)
    if not acquire_lock(orders["lock"]):
        sys.stderr.write("another agent still runs in this workspace\n")
        return BUSY
    # A Ctrl+C in the terminal must reach the portal alone, which then stops its agent.
    os.setsid()
    env = dict(orders["env"])
    env.update({name: os.environ[name] for name in orders["inherit"] if name in os.environ})
    argv = [*orders["argv"], *arguments]
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{argv[0]} cannot be started: {error.strerror}\n")
    return 127


def acquire_lock(path: str, patience: float = PATIENCE) -> bool:
    """Lock the workspace for as long as this process lives, also after it became the agent."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
