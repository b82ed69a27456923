"""Where message streams store their messages: in memory, or in channels of a server."""
