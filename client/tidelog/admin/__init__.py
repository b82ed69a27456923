"""Calls on channels, broadcasts, tokens, nodes and checkpoints, and the types of their results."""
