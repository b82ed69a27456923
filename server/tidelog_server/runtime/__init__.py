"""Where time, tasks, signals of failure and measurements enter. Nothing here knows what a channel is."""
