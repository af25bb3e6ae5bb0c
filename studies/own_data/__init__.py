"""Requests about tables of private records, and the only reader of these tables."""
