"""The exception of exports and imports."""


class ExportError(ValueError):
    """A module cannot be exported, or a file cannot be imported; the message states the reason and the remedy."""
