"""The only layer that speaks gRPC and protobuf: checks what comes in once, and turns domain errors into statuses."""
