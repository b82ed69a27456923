"""Connections: calls, retries, errors from statuses, credentials, forks, and the background event loop."""
