"""One node among several: its registration, who owns which channel, and who hands out ticks."""
