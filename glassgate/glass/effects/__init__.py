"""The measures of a report's findings. Each measure yields the effects in a study, with their intervals."""
