"""Clocks, background tasks, failpoints, logs and metrics. Independent of channels and the log."""
