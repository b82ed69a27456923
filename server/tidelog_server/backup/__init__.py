"""Backups: checkpoints of a running store, folders of backups, and restores."""
