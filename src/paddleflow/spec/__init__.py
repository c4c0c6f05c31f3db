"""The documents that people write, and the words of the wire. Pure: decoding and checking, no I/O."""
