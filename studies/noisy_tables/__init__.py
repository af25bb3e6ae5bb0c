"""Intervals for the true counts of published tables with noise."""
