"""Messages of mailboxes: sending, fetching, acknowledging, and workers."""
