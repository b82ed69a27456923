"""Commands for mailboxes."""
