"""Thin wrapper: see hf_vitgeo/commands/train_supervised.py."""

from hf_vitgeo.commands.train_supervised import main

if __name__ == "__main__":
    main()
