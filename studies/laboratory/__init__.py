"""All studies in one folder, and the page with their verdicts."""
