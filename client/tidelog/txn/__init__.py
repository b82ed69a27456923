"""Transactions: inline ones, staged ones, and the calls on prepared ones."""
