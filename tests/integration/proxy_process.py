"""An API key proxy in a process of its own, whose memory can be looked at. Ends with its standard input."""

import sys

from tasks_app.agent.proxy import ApiKeyProxy

proxy = ApiKeyProxy(api_key="sk-real", upstream=sys.argv[1])
proxy.start()
with proxy.run_token() as (token, _):
    print(proxy.url.removeprefix("http://"), token, flush=True)  # noqa: T201
    sys.stdin.read()
proxy.stop()
