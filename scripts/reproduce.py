"""Thin wrapper: see hf_vitgeo/commands/reproduce.py."""

from hf_vitgeo.commands.reproduce import main

if __name__ == "__main__":
    main()
