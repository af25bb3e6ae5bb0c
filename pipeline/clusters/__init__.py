"""Clusters: profiles, connections, checks and previews.

It guarantees that a profile was checked before a cluster starts, and that `connect` yields a client whose workers can
load this package: of a profile, of an address, or of the user. A cluster that it starts is stopped at the end, and a
client of the user remains open. Started clusters listen on the loopback interface or use TLS by default, and no message
contains credentials. Nothing here uses studies or stores.
"""
