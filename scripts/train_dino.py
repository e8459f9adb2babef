"""Thin wrapper: see hf_vitgeo/commands/train_dino.py."""

from hf_vitgeo.commands.train_dino import main

if __name__ == "__main__":
    main()
