"""Floors: what this machine needs without the portal for what a figure measures.

Each floor is measured in the same run as its figure and in turns with it, or at the same time, so that noise
hits both. `halting` has the floors of a halt and a resume; `plain_database` those of rows, by the database's
driver alone; `bare_server` those of requests and WebSockets, by an application that does nothing else;
`statements` those of pages; `bare_python` those of memory and of starting.
"""
