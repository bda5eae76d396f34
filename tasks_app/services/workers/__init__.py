"""Workers: whose turn it is, notifying them, their hosts' tokens and limits, where workspaces are."""
