"""Looking inside: recordings of gates and states, and diagrams and pages of them."""
