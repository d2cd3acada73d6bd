"""Errors that people see. Each message says what, where, and what to do.

ElasticdError
├── UsageError        wrong usage or configuration      exit 2
└── NotReachable      no daemon answers                 exit 3
"""

from __future__ import annotations


class ElasticdError(Exception):
    """Something a person should read as one message, without a traceback."""

    exit_code = 1


class UsageError(ElasticdError):
    """Wrong usage or configuration."""

    exit_code = 2


class NotReachable(ElasticdError):
    """The daemon does not answer."""

    exit_code = 3
