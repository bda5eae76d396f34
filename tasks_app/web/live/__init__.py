"""Open pages learn of changes.

`wakeup` tells the web process that a change row was committed; `tailer` reads new rows;
`updates` passes them to the open sockets; `consumers` sends to each socket what its user may see.
"""
