"""What a study is: factors, panels, methods, claims, and the random numbers of each trial."""
