"""What the commands print: records, messages, progress."""
