"""The folder or GGUF file of a model: a path, or what huggingface_hub, where it is installed, fetches for a name of the Hugging Face hub."""

import os
import re

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)
MODEL_FILES = ("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json", *TOKENIZER_FILES)


def folder_of(name, files=MODEL_FILES):
    """The absolute path of the folder or GGUF file `name`, or of the files of OWNER/NAME in huggingface_hub's cache."""
    name = os.fspath(name)
    if os.path.exists(name):
        return os.path.abspath(name)
    is_hub_name = re.fullmatch(r"\w[\w.-]*/[\w.-]+", name)
    folder = os.path.basename(name)
    try:
        if not is_hub_name:
            raise ImportError
        import huggingface_hub
    except ImportError:
        raise FileNotFoundError(
            f"{name}: no such folder, and without huggingface_hub Napier downloads nothing. A model of the Hugging Face hub comes with\n"
            f"    pip install huggingface_hub\n    hf download {name if is_hub_name else f'OWNER/{folder}'} --local-dir {folder}"
        ) from None
    try:
        return os.path.abspath(huggingface_hub.snapshot_download(name, allow_patterns=list(files)))
    except (OSError, ValueError) as error:  # no such model, no access, no network
        raise FileNotFoundError(f"{name}: no such folder, and huggingface_hub cannot fetch a model of this name: {error}") from error


def tokenizer_in(path):
    """What holds the tokenizer of a model: the tokenizer.json of a folder, or a GGUF file itself."""
    return os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path


def is_gguf(path):
    """Whether a path is that of a file of GGUF."""
    if os.path.isdir(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"GGUF"
