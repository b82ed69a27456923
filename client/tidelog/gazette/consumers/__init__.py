"""Consumers of journals, whose state is committed in a checkpoint store."""
