"""The API key proxy: agents reach their model through it, and never see the API key.

It counts the usage of each run token in requests and responses, and enforces the limits of the run: the
models that the step may use and the dollars that are left.
"""

from tasks_app.agent.proxy.meter import RunLimits, RunMeter
from tasks_app.agent.proxy.server import ApiKeyProxy
