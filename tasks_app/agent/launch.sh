#!/bin/sh
# What the SDK starts in place of the agent: a fixed file. One written for each run could still be open for
# writing in a child that another thread is just starting, and then it cannot be executed (ETXTBSY).
exec "$CAT_HERDER_PYTHON" -ISB "${0%/*}/launch.py" "$CAT_HERDER_ORDERS" "$@"
