"""How many of what."""


def plural(number: int, name: str) -> str:
    """Return a number with its noun.

    Example:
        >>> plural(1, "epoch"), plural(1_500, "step")
        ('1 epoch', '1,500 steps')
    """
    return f"{number:,} {name}{'' if number == 1 else 's'}"
