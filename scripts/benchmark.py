"""Thin wrapper: see hf_vitgeo/commands/benchmark.py."""

from hf_vitgeo.commands.benchmark import main

if __name__ == "__main__":
    main()
