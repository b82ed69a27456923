"""The handlers of the gRPC services, one module per service or large method."""
