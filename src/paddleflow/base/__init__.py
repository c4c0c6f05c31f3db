"""Values that everything else is made of: time, ids, names, quantities. No I/O."""
