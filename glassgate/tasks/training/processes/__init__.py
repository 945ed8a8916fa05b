"""Training on several processes: which there are, what they tell each other, and which of them is lost."""
