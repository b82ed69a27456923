"""Authentication and authorization: credentials, permissions, the guard, the audit log. Independent of gRPC."""
