"""The ViTGeo model family. Importing it registers the classes with transformers' Auto classes.

The modules are flat and import only siblings, torch, transformers and huggingface_hub, because a checkpoint carries
them to the Hub. `conversion` is imported by nobody here and does not travel.
"""

from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

from hf_vitgeo.models.configuration_vitgeo import ViTGeoConfig
from hf_vitgeo.models.modeling_vitgeo import ViTGeoForImageClassification, ViTGeoModel

AutoConfig.register("vitgeo", ViTGeoConfig, exist_ok=True)
AutoModel.register(ViTGeoConfig, ViTGeoModel, exist_ok=True)
AutoModelForImageClassification.register(ViTGeoConfig, ViTGeoForImageClassification, exist_ok=True)

# save_pretrained then copies the code beside the weights, for users of trust_remote_code.
ViTGeoConfig.register_for_auto_class()
ViTGeoModel.register_for_auto_class("AutoModel")
ViTGeoForImageClassification.register_for_auto_class("AutoModelForImageClassification")

__all__ = ["ViTGeoConfig", "ViTGeoForImageClassification", "ViTGeoModel"]
