"""Looking inside: recordings of gates and states, and what is drawn from them."""
