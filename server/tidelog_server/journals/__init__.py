"""Journals: named sequences of frames with labels, each in the vchannel of a channel of its own."""
