"""The command line: `paddleflow GROUP COMMAND`, for people and scripts.

Data goes to stdout and everything else to stderr. Each group is one module, imported when it is called; whatever is
heavy (HTTP, rich, the server) is imported by the command that needs it, so that a command answers within 150 ms.
"""
