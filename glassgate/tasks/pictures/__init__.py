"""Pictures of scores, training curves and attention."""
