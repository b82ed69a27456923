"""Formats of pandora: times and durations as Go writes them, and URL-encoded bodies; for the client and the server."""
