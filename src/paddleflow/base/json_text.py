"""JSON as rows, events and the decision log hold it: compact, and characters as they are. Pure.

The encoder is made once; `json.dumps` makes one a call. It does not look for values that contain themselves, which more than doubles the
time of a short text: what is encoded was JSON before, or YAML, whose reader refuses such aliases. A value that does raises RecursionError.
"""

from __future__ import annotations

import json

json_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
#: For text that may hold what a database refuses (NUL, half a surrogate pair): it travels as ``\\uXXXX``.
ascii_json_text = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
