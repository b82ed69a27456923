"""Consumer groups: the consumer, its member stream, and the calls on groups."""
