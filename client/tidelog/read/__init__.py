"""Scans: positions, plans, and what a reader reports while it waits."""
