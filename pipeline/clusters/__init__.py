"""Clusters: profiles, connections, checks and previews."""
