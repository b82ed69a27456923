"""The only layer that uses gRPC and protobuf. It validates requests, once, and maps domain errors to statuses."""
