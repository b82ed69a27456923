"""Connections to a node of a cluster, which move to the process that serves it."""
