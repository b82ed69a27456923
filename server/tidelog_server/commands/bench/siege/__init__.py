"""``tidelog bench security``: clients, attackers and servers."""
