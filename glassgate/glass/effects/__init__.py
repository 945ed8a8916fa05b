"""The measures of the findings. Each function yields the effects that it finds in a study, with their intervals."""
