"""Totals of flights in a database, kept exact while their consumer is killed.

Flights are published to journals. A consumer adds them up by carrier in SQLite or PostgreSQL and publishes an alert for
each long delay, and is killed at random. At the end, totals and alerts are those of a plain sum.
"""
