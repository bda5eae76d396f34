"""Layers of the ASGI application before Django, and the answers that need no page.

They limit connections and bodies, find the client behind proxies, refuse sandboxed processes, and answer
`/healthz`, `/readyz` and `/metrics`. `asgi.py` puts them together; `worker_hosts/` stands among them.
"""
