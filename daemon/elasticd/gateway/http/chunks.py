"""One chunk of a body, read and written: done for each token, so with what is made only once."""

from __future__ import annotations

_MOST = 4096
_HEADS = [b"%x\r\n" % size for size in range(_MOST)]
"""How a chunk of so many bytes begins."""

_END = b"\r\n"

_BY_LENGTH: list[bytes] = [b""] * (_MOST + 7)
"""How a read of so many bytes begins that is one whole chunk; empty where none has that length, or
it is so short that it may be the last one."""
for _size in range(16, _MOST):
    _BY_LENGTH[len(_HEADS[_size]) + _size + len(_END)] = _HEADS[_size]


def whole_chunk(data: bytes) -> bytes:
    """What is in a read that is one whole chunk of 16 to 4095 bytes, written as engines write them;
    empty: it is something else, which the parser must see.

    Nearly every token is one. To the parser it would be the same; it would cost more than all the
    rest that is done with it here.
    """
    length = len(data)
    head = _BY_LENGTH[length] if length < _MOST + 7 else b""
    if head and data.startswith(head) and data.endswith(_END):
        return data[len(head) : -2]
    return b""


def chunk(data: bytes) -> bytes:
    """These bytes, of which there is at least one, as a chunk."""
    size = len(data)
    head = _HEADS[size] if size < _MOST else b"%x\r\n" % size
    return b"".join((head, data, _END))
