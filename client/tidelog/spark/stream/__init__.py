"""Streaming reads: offsets, the plan of each batch, and its size."""
