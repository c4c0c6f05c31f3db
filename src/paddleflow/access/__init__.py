"""Users, tokens, grants: who calls, and what they may use.

Passwords are kept as argon2 hashes, tokens as SHA-256 of an opaque random text. `sessions` answers for every request
from memory; everything else is a transaction.
"""
