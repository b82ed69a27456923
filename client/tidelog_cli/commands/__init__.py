"""The commands that need a client only, a module each."""
