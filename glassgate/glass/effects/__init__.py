"""The measures of the findings. Each function yields effects of a study, with their spread over passages."""
