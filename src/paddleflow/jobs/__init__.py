"""Jobs: what they are, when they may be submitted, how they move, and their rows."""
