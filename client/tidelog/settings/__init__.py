"""Where the server is, and the credentials for it: from arguments, a saved context, or the environment."""
