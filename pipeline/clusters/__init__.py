"""Where to compute: profiles, connections, and what would be started."""
