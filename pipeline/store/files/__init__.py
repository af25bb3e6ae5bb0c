"""Files by key, in a local folder or an object store; writes require a session, which a later one can fence."""
