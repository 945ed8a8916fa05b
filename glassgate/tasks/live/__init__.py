"""The interactive part of a report: for each task a description of its network, and a script that runs it."""
