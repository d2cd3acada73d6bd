"""Things to show elasticd with, where there is no real model: a tiny one, made on the spot.

Knows nothing of the daemon: no other part of elasticd is imported here.
"""
