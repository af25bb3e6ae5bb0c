"""Names, metadata and initial files of a store: its root, and the template of its groups and arrays."""
