"""Several people or workers act at the same moment: each in a process of its own, with its own connection."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection, connections

from tasks_app.core.errors import CatHerderError

#: Rounds of a race. In each of them another contender is late, by another amount.
ROUNDS = int(os.environ.get("CATHERDER_TEST_ROUNDS_OF_RACES", "6"))
_STEP_SECONDS = 0.0005


@dataclass(frozen=True)
class Result:
    """What came of one contender: `refused` is the class of the error that it was refused with, if it was."""

    said: str
    refused: str = ""


def race(number: int, *contenders: Callable[[], object]) -> list[Result]:
    """Let all contenders act at once; what came of each. `number` is that of the round.

    Raises AssertionError if one of them ended with anything but a result or a named refusal.
    """
    connections.close_all()  # a connection cannot be shared with a fork
    start, gun = os.pipe()
    late = number % len(contenders)
    runners = [
        _started(act, start, gun, late=_STEP_SECONDS * (number // len(contenders)) if n == late else 0.0)
        for n, act in enumerate(contenders)
    ]
    for _, results in runners:
        os.read(results, 1)  # it has its connection
    os.close(gun)
    os.close(start)
    return [_result_of(*runner) for runner in runners]


def _started(act: Callable[[], object], start: int, gun: int, *, late: float) -> tuple[int, int]:
    results, mine = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(gun)
            connection.ensure_connection()
            os.write(mine, b"!")
            os.read(start, 1)  # ends for all at once, when the last one is ready
            time.sleep(late)
            os.write(mine, pickle.dumps(_outcome(act)))
        finally:
            os._exit(0)
    os.close(mine)
    return child, results


def _outcome(act: Callable[[], object]) -> Result:
    try:
        return Result(str(act()))
    except CatHerderError as error:
        return Result(str(error), type(error).__name__)
    except BaseException:
        return Result(traceback.format_exc(), "a fault")


def _result_of(child: int, results: int) -> Result:
    with os.fdopen(results, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    assert said, "a contender ended without a word"
    result: Result = pickle.loads(said)  # noqa: S301
    assert result.refused != "a fault", result.said
    return result
