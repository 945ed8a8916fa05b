"""Inference sessions: models whose recurrent layers have fixed, packed weights."""
