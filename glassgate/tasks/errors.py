"""Errors caused by user input; the command line prints them without a traceback."""


class UserError(ValueError):
    """Invalid user input; the message contains the expected input, the given input and the remedy."""


class DataError(UserError):
    """A data file cannot be used; the message begins with the file name and, if known, the line number."""

    def __init__(self, path: object, line: int | None, message: str):
        where = "standard input" if str(path) == "-" else path
        super().__init__(f"{where}: {message}" if line is None else f"{where}:{line}: {message}")


class OptionError(UserError):
    """An unknown option or an invalid value of an option."""


class RunError(UserError):
    """A run folder is missing, incomplete or damaged, or was written by a newer version."""
