"""All studies in one folder, and the page on which they are judged."""
