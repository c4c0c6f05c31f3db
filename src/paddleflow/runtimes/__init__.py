"""Where jobs really run: one protocol (`runtime`), one folder per implementation."""
