"""`/worker/`: what workers on hosts of their own use the portal for, over HTTP (M1).

`application.py` checks each request and leads to the others. The rules, such as what a token reaches, are in
`services/workers/hosts.py`; the worker's side is in `git/`.
"""
