"""The composition root: settings → objects → one TaskGroup.

Order of start: lock of the data folder, socket, database, root and defaults, runtime, engine; a fault in any of them is
said in one sentence and nothing stays half open. On SIGTERM or Ctrl-C the server answers what it has begun, ends its
streams and lets go; jobs go on running and the next start takes them up.
"""
