"""The client that finds owners."""
