"""The measures of the findings: each function yields the effects of one study, with their spread over passages."""
