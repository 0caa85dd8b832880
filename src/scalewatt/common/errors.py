"""The one exception whose message is written for the user."""


class InputError(Exception):
    """Something the user gave is wrong; the message says what, where and what is allowed."""
