"""One module a script: it parses, wires and calls plain functions."""
