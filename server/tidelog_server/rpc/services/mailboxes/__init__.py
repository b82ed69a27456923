"""MailboxService."""
