"""Thin wrapper: see hf_vitgeo/commands/probe.py."""

from hf_vitgeo.commands.probe import main

if __name__ == "__main__":
    main()
