"""Calls on channels, broadcasts, mailboxes, blobs, tokens, nodes and checkpoints, and the types of their results."""
