"""The synchronous twins of the asynchronous classes."""
