"""Runs until a Monte Carlo precision is reached or claims are decided: targets, stopping rules, growth, forecasts."""
