"""Restricting a process inside bubblewrap, before it becomes the sandboxed program.

`bubblewrap.py` passes the text of this file to the portal's Python.

Mounts cannot hide two things, because they are not files. Sockets with abstract names belong to the network,
which is shared: a desktop's X11 and D-Bus may listen there, and a process that can use them escapes from the
sandbox. The keyring of the session that started the worker may hold tickets and passwords, and is inherited.
Older kernels lack some of these restrictions: that of sockets needs Linux 6.12.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_SCOPE_ABSTRACT_SOCKETS = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_JOIN_SESSION_KEYRING = 1
#: SIGPIPE and SIGXFSZ: Python ignores them, and the program would inherit that.
_IGNORED_BY_PYTHON = (13, 25)


def restrict() -> None:
    """Deny abstract sockets, and leave the inherited keyring."""
    kernel = ctypes.CDLL(None)
    # Handled access to files, to the network, and the scope (struct landlock_ruleset_attr).
    rules = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_ABSTRACT_SOCKETS)
    ruleset = kernel.syscall(_LANDLOCK_CREATE, rules, ctypes.sizeof(rules), 0)
    if ruleset >= 0:
        kernel.syscall(_LANDLOCK_RESTRICT, ruleset, 0)
        os.close(ruleset)
    if number := _KEYCTL.get(os.uname().machine):
        kernel.syscall(number, _JOIN_SESSION_KEYRING, None)


def reset_signals() -> None:
    """Reset the signals that Python ignores."""
    kernel = ctypes.CDLL(None)
    for number in _IGNORED_BY_PYTHON:
        kernel.signal(number, None)


def set_limits(limits: dict[str, int]) -> None:
    """Limit this process and those that it starts. `oom_score` and `nice` are raised, never lowered."""
    with open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123
        score = max(int(file.read()), limits.pop("oom_score", 0))
        file.seek(0)
        file.write(str(score))
    os.nice(limits.pop("nice", 0))
    set_session_niceness(limits.pop("session_nice", 0))
    for name, wanted in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(which)
        bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (bound, bound))


def set_session_niceness(niceness: int) -> None:
    """Let this session wait for others (see `sandbox/limits.py`), if the kernel lets it."""
    try:
        with open("/proc/self/autogroup", "w") as file:  # noqa: PTH123
            file.write(str(niceness))
    except OSError:  # it has no groups, or another one was changed just now: the portal tries again
        pass


def main(argv: list[str]) -> int:
    """Become the program. Returns the exit code of a shell only if that fails.

    The first argument has the limits, as `NAME=VALUE NAME=VALUE`: importing a parser would take longer than
    all the rest.
    """
    restrict()
    words = (word.partition("=") for word in argv.pop(0).split())
    set_limits({name: int(value) for name, _, value in words})
    reset_signals()
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
