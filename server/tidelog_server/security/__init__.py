"""Who may do what: credentials, permissions, certificates and quotas. Knows neither gRPC nor channels."""
