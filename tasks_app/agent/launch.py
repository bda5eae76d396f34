"""The launcher: what the SDK starts in place of the agent's program.

A program of its own (`python -ISB launch.py ORDERS ARGUMENTS…`). It replaces the worker's environment,
which the SDK always passes on, by the listed one, makes sure that no other agent is at work in the
workspace, and becomes the sandboxed agent. ORDERS is a JSON file {argv, env, inherit, lock}: `inherit`
names the variables that are taken from the SDK.
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
    """Does not return when all is well."""
    with open(orders_path, encoding="utf-8") as file:  # noqa: PTH123
        orders = json.load(file)
    if not hold(orders["lock"]):
        sys.stderr.write("another agent is still at work in this workspace\n")
        return BUSY
    # A Ctrl+C at the terminal is for the portal alone, which ends its agent in order.
    os.setsid()
    env = dict(orders["env"])
    env.update({name: os.environ[name] for name in orders["inherit"] if name in os.environ})
    argv = [*orders["argv"], *arguments]
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{argv[0]} cannot be started: {error.strerror}\n")
    return 127


def hold(path: str, patience: float = PATIENCE) -> bool:
    """Take the workspace's lock for as long as this process, or what it becomes, lives."""
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
