"""``benchmarks security``: clients, attackers and servers."""
