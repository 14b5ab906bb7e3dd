"""The one exception that reaches a user as a sentence."""


class InputError(ValueError):
    """Something the user gave cannot be used: one sentence says what, where, and what to do.

    The command line prints the message and exits with status 2; no traceback, nothing half-written.
    """
