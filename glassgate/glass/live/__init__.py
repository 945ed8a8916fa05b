"""Pages that run a network: `gg.draw(cell).live()` and `glassgate report RUN --live`."""
