"""All threads of a process share one heap, so that what one has freed serves the others."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forkserver import REPOSITORY
from tests.installation import Installation

#: Threads that have memory at the same time; prints how many heaps there are then.
COUNT_HEAPS = """
import ctypes, sys, threading
everybody = threading.Barrier(9)
def work():
    held = [bytes(2000) for _ in range(100)]
    everybody.wait(); everybody.wait()
for _ in range(8):
    threading.Thread(target=work).start()
everybody.wait()
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(c.fopen(sys.argv[1].encode(), b"w"))
c.malloc_info(0, file)
c.fclose(file)
everybody.wait()
"""

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="needs glibc")


def heaps(start: str, folder: Path) -> int:
    """Return the number of heaps of a process that begins with this code and then has threads."""
    found, env = folder / "heaps.xml", Installation(folder).env()
    subprocess.run(
        [sys.executable, "-c", start + COUNT_HEAPS, str(found)], env=env, cwd=REPOSITORY, check=True
    )
    return found.read_text().count("<heap nr=")


def test_threads_have_heaps_of_their_own_without_it(tmp_path: Path) -> None:
    assert heaps("", tmp_path) > 1


def test_one_heap_serves_all_threads_of_a_process_with_the_app(tmp_path: Path) -> None:
    assert heaps("import django; django.setup()", tmp_path) == 1
