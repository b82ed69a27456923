"""Streams over a log that gives each message a tick: on a Tidelog server, and in memory."""
