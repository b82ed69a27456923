"""Benchmarks: each measures Tidelog and, in the same run on the same disk, the floor it stands on."""
