"""Reads: the plan of the partitions, and their rows as Arrow."""
