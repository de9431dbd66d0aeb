"""The exception that a command line reports in one line."""

__all__ = ["UserError"]


class UserError(Exception):
    """Something that a user can mend: the message is one line that says what, where and how."""
