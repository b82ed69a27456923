"""Mailboxes: work queues of messages under leases, each in the vchannel of a channel of its own."""
