"""Thin wrapper: see hf_vitgeo/commands/analyze.py."""

from hf_vitgeo.commands.analyze import main

if __name__ == "__main__":
    main()
