"""PaddleFlowFS: the file system, one rung per module (docs/internals/fs.md has the walk of a read and of a write)."""
