"""What every layer speaks of: ticks, names, limits, entries and errors. Standard library only."""
