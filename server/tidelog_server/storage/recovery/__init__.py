"""What is checked before a store is opened for writing: a read-only view of it, in a child process."""
