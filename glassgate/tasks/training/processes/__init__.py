"""Training on several processes: their roles, the messages between them, and the detection of a lost one."""
