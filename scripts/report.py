"""Thin wrapper: see hf_vitgeo/commands/report.py."""

from hf_vitgeo.commands.report import main

if __name__ == "__main__":
    main()
