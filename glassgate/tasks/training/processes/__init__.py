"""Training in several processes: the environment that describes them, and the communication between them."""
