"""Types used by every layer: ticks, names, limits, entries and errors. Standard library only."""
