"""Messages of a mailbox in memory: their rows, their locks, their groups, and the order of delivery. Pure."""
