"""Authentication and authorization: credentials, permissions, certificates. Independent of gRPC and channels."""
