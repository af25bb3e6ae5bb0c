"""Rényi differential privacy: what one draw of a posterior spends, and posteriors weak enough."""
