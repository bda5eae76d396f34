"""Layers of the ASGI application before Django, and the answers that need no page.

They limit connections and bodies, find the client behind proxies, refuse sandboxed processes, and answer
`/healthz`, `/readyz` and `/metrics`. `catherder_site/asgi.py` puts them together with `worker_api`.
"""
