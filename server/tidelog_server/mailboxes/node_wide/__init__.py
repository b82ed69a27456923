"""What concerns all mailboxes of a node: figures, bounds, and their states at a tick for a restore."""
