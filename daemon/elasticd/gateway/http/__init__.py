"""HTTP/1.1 as bytes: one protocol towards clients, one towards replicas, and the pool between.

Knows nothing of models, leases and queues. `head` writes and reads what stands before a body,
`client_protocol` and `pool` are the connections to replicas.
"""
