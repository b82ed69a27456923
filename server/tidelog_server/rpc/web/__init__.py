"""Calls by HTTP: pandora's endpoints. They pass the same checks as calls by gRPC, and reach the same handlers."""
