"""Errors of users: the command line prints their text without a traceback."""


class UserError(ValueError):
    """The user's input was wrong; the message has the expected input, the given input and the remedy."""


class DataError(UserError):
    """A data file cannot be used; the message opens with the file and, where there is one, the line."""

    def __init__(self, path: object, line: int | None, message: str):
        where = "standard input" if str(path) == "-" else path
        super().__init__(f"{where}: {message}" if line is None else f"{where}:{line}: {message}")


class OptionError(UserError):
    """An option has an unknown name or a value it cannot take."""


class RunError(UserError):
    """A run folder is missing, incomplete, damaged or made by a newer version."""
