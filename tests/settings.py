"""Django's settings for tests: nothing of this machine's portal, its keys or its databases.

pytest-django reads the settings before it reads any conftest.py, so the environment is put in order here.
"""

import gc
import os
import tempfile
from uuid import uuid4

from tests import machine

_data = tempfile.TemporaryDirectory(prefix="catherder-tests-", ignore_cleanup_errors=True)
machine.forget_this_machine(os.environ)
os.environ["CATHERDER_DATA_DIR"] = _data.name
os.environ["CATHERDER_UNDO_SECONDS"] = "0"  # else each test that answers would wait for 5 s
# All workers of a run share a folder: that of the process which started them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _shared = tempfile.TemporaryDirectory(prefix="test-catherder-run-", ignore_cleanup_errors=True)
    os.environ["CATHERDER_TEST_SHARED"] = _shared.name

import dj_database_url  # noqa: E402

from catherder_site.settings import *  # noqa: E402, F403
from catherder_site.settings import DATABASES, MIDDLEWARE  # noqa: E402

# Processes that tests start read the installation's settings, in the same data directory.
os.environ["DJANGO_SETTINGS_MODULE"] = "catherder_site.settings"

# To collect 6,000 tests makes millions of objects and no garbage.
gc.set_threshold(50_000, 20, 20)

# A good hash takes half a second, which is not what is tested.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# These two serve asynchronous servers only. With them, Django's test client starts an event loop and a thread
# for each request. Servers that tests start have them.
_ASYNCHRONOUS = ("servestatic.middleware.ServeStaticMiddleware", "catherder_site.request_slots.request_slots")
MIDDLEWARE = [name for name in MIDDLEWARE if name not in _ASYNCHRONOUS]

# Nobody cuts the power of a test's database.
if machine.ON_POSTGRES:
    DATABASES["default"] = dj_database_url.parse(machine.POSTGRES, engine="catherder_site.postgresql")
    DATABASES["default"]["TEST"] = {"NAME": f"test_catherder_{uuid4().hex[:12]}"}
    DATABASES["default"]["OPTIONS"] = {"options": "-c synchronous_commit=off"}
else:
    # A file, as threads and processes share it in an installation too; a database in memory has no WAL.
    DATABASES["default"]["TEST"] = {"NAME": f"{_data.name}/test.sqlite3"}
    DATABASES["default"]["OPTIONS"]["init_command"] += " PRAGMA synchronous=OFF;"
