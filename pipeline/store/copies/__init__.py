"""Copies of finished stores, whose originals are only read."""
