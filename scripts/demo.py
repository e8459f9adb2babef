"""Thin wrapper: see hf_vitgeo/commands/demo.py."""

from hf_vitgeo.commands.demo import main

if __name__ == "__main__":
    main()
