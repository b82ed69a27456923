"""The server that commands call: its options, the variables of all options, and the contexts."""
