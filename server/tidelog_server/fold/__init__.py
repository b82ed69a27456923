"""States that are the fold of a log: everything that mailboxes and blobs have in common but state, events, operations.

The step decides and changes the state, and writes its events as one entry; a start replays them from the last snapshot.
"""
