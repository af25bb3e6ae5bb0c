"""Bytes of a store: values to encoded chunks and back, their digests and checksums, and their keys and regions."""
