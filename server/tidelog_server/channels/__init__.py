"""Channels: their records, owners, placement and retention."""
