"""Vision Transformers whose spatial geometry can be controlled, measured and seen.

Importing the package is cheap: names are resolved on first touch. Touching a model name (or
`import hf_vitgeo.models`) registers ViTGeo with the transformers Auto classes.
"""

from importlib import import_module
from typing import Any

from hf_vitgeo.version import __version__

_LAZY = {
    "ViTGeoConfig": "hf_vitgeo.models",
    "ViTGeoModel": "hf_vitgeo.models",
    "ViTGeoForImageClassification": "hf_vitgeo.models",
    "RunDir": "hf_vitgeo.runs",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'hf_vitgeo' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
