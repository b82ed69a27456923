"""Benchmarks: each measures Tidelog and, in the same run on the same disk, a floor: the same work without Tidelog."""
