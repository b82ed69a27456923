"""Transactions: inline ones in one request, staged ones in many, and prepared ones of several clients."""
