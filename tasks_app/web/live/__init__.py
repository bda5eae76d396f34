"""Open pages learn of changes.

`notifier` says that a change row was committed; `detectors` wake the web process; `tailer` reads new rows;
`updates` passes them to the open sockets; `consumers` sends to each socket what its user may see.
"""
