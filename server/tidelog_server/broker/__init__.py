"""The channels of this node: created, destroyed, found by name."""
