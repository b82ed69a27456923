"""Streams on Apache Pulsar, and the ticks that their packs need."""
