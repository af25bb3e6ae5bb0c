"""Declaration of studies: factors, panels, methods, claims and random streams."""
