"""Appends: batches, the queue of each vchannel, the stream that carries them, and producers."""
