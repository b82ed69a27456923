"""Example: workers of a mailbox are killed at random, and every job is done once.

A worker appends its result, sends a letter and confirms its job in one transaction.
"""
