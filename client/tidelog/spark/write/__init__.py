"""Writes: routing of rows, and the writers of batches and streams."""
