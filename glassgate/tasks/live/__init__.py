"""The interactive part of a report, see `page`."""
