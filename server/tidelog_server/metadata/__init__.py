"""The metadata store, the source of truth about channels: an ordered map with revisions, and its implementations."""
