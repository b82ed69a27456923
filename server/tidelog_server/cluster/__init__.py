"""Cluster membership of a node: its registration, channel ownership, and the leader that hands out ticks."""
