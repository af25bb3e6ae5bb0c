"""Study of the sequential stopping rules of the pipeline."""
