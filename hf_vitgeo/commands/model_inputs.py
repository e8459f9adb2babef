"""The model that a command measures, the data that its run knew, and the size of the pictures that it takes."""

from typing import Any

from hf_vitgeo.runs import RunDir


def label_of(model: str, given: str | None) -> str:
    """The model's name in results.

    Args:
        model: run folder, checkpoint folder or Hub id.
        given: what the flag says, or None.

    Returns:
        The flag, or what the run says, or the end of the path.
    """
    return given or RunDir(model).args().get("model") or model.rstrip("/").rsplit("/", 1)[-1]


def complete(args: Any, trained: dict[str, Any]) -> str:
    """Fill in what was left out of the flags and the model's run knows: data set, split and columns.

    Args:
        args: with `model`, `output_dir`, `dataset_name`, `split`, `image_column_name`, `label_column_name`, of which
            the last three are changed in place.
        trained: arguments of the run; empty where there is none.

    Returns:
        The data set's name.

    Raises:
        ValueError: where no data set is named, or there is no folder for the results.
    """
    if not RunDir(args.model).checkpoint.is_dir() and args.output_dir is None:
        raise ValueError(f"{args.model} is no run folder; name one for the results with --output_dir")
    dataset_name = args.dataset_name or trained.get("dataset_name")
    if dataset_name is None:
        raise ValueError("--dataset_name is missing, and the model has no run that names one")
    if dataset_name == trained.get("dataset_name"):
        # what the run knew of its data holds for its analysis
        args.split = args.split or trained.get("eval_split")
        args.image_column_name = args.image_column_name or trained.get("image_column_name")
        args.label_column_name = args.label_column_name or trained.get("label_column_name")
    args.split = args.split or "test"
    return str(dataset_name)


def load_model(path: str, device: str) -> tuple[Any, Any]:
    """A model of any supported family with its image processor.

    Args:
        path: run folder, checkpoint folder or Hub id.
        device: `auto`, or what torch calls it.

    Returns:
        The model in evaluation mode, with its classifier where it has one, and the processor.

    Raises:
        OSError: where nothing can be loaded.
    """
    import torch
    from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoModelForImageClassification

    import hf_vitgeo.models  # noqa: F401  registers ViTGeo

    checkpoint = RunDir(path).checkpoint
    path = str(checkpoint) if checkpoint.is_dir() else path
    config = AutoConfig.from_pretrained(path)
    classifies = any("ImageClassification" in name for name in config.architectures or [])
    model = (AutoModelForImageClassification if classifies else AutoModel).from_pretrained(path)
    if device == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        device = "cpu" if found is None else found.type
    return model.to(device).eval(), AutoImageProcessor.from_pretrained(path)


def picture_size(config: Any, processor: Any) -> tuple[int, int]:
    """Height and width that enter the model, in pixels.

    Pictures are resized to it without keeping their aspect ratio and without a crop, as in paper A.

    Args:
        config: the model's configuration.
        processor: its image processor.

    Returns:
        What the processor's last step gives: its crop, or its resize where that fixes both sides; otherwise (a resize
        of the shorter side alone) what the configuration says.

    Raises:
        ValueError: where none of them names a size.
    """
    crop = processor.crop_size if getattr(processor, "do_center_crop", False) else None
    for size in (crop, processor.size):
        if size and size.get("height") and size.get("width"):
            return int(size["height"]), int(size["width"])
    size = getattr(config, "image_size", None)
    if size is None:
        raise ValueError("neither the image processor nor the configuration names the height and width of a picture")
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
