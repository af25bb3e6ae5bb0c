"""Sessions: the only process that may write to a store, and the records of those that wrote to it."""
