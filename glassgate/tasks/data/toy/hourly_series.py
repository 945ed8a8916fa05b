"""A generated hourly series for forecasting: a trend, daily and weekly seasons, and noise."""

import numpy as np

STEPS = 24 * 7 * 20
"""The default number of steps: 20 weeks."""


def generate(seed: int = 0, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Return hourly time stamps and values, `(L,)` each.

    Example:
        >>> times, values = generate(steps=3)
        >>> times.astype(str).tolist()[1], values.shape
        ('2024-01-01T01:00:00.000000', (3,))
    """
    random = np.random.default_rng(seed)
    hours = np.arange(steps)
    times = np.datetime64("2024-01-01", "us") + hours.astype("timedelta64[h]")
    daily_season = np.sin(2 * np.pi * (hours - 8) / 24) + 0.4 * np.sin(4 * np.pi * (hours - 3) / 24)
    is_weekend = (hours // 24 % 7) >= 5
    slow_noise = np.zeros(steps)
    for step in range(1, steps):
        slow_noise[step] = 0.9 * slow_noise[step - 1] + 0.3 * random.normal()
    values = 100 + 0.01 * hours + 12 * daily_season * np.where(is_weekend, 0.5, 1.0) - 8 * is_weekend + 2 * slow_noise
    return times, values + random.normal(size=steps)
