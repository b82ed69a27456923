"""Consumer groups: their records, positions, members and lag."""
