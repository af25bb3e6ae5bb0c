"""Bayesian inference from a noisy sum of records of an exponential family."""
