"""Foreign formats and pictures: one module per format. Nothing here solves or prints."""
