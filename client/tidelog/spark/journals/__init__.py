"""Batch reads of journals: the partitions, their committed messages, and the rows as Arrow."""
