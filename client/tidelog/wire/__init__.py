"""The format of messages and columns. Of the client, the server imports only this package and the generated ``v1``."""
