"""Calls on channels, broadcasts, tokens and nodes, and the types of their results."""
