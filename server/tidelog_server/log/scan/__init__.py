"""Reads of channel logs: positions, plans, scans and their memory."""
