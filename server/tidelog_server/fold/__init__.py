"""States that are the fold of a log: what features have in common whose state is replayed from their events."""
