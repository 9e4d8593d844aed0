"""Types of napier.lm_eval."""

from os import PathLike
from typing import Any, Optional

from lm_eval.api.model import TemplateLM

from ._lm.causal_lm import CausalLM

missing: Optional[ImportError]

class NapierLM(TemplateLM):
    model: CausalLM
    max_length: int
    max_gen_toks: int
    def __init__(
        self,
        pretrained: str | PathLike[str] | CausalLM,
        compute: str = "float32",
        memory: int = 0,
        max_length: Optional[Any] = None,
        prefix_token_id: Optional[int] = None,
        batch_size: Optional[Any] = None,
        max_batch_size: Optional[Any] = None,
        device: Optional[Any] = None,
        max_gen_toks: int = 256,
        chat_template_args: Optional[dict[str, Any]] = None,
        enable_thinking: Optional[bool] = None,
        think_end_token: Optional[str | int] = None,
        **unknown: Any,
    ) -> None: ...
    @property
    def eot_token_id(self) -> Optional[int]: ...
    @property
    def prefix_token_id(self) -> int: ...
    @property
    def tokenizer_name(self) -> str: ...
    def chat_template(self, chat_template: bool | str = False) -> Optional[str]: ...
    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str: ...
    def tok_encode(self, string: str, add_special_tokens: Optional[Any] = None, **_: Any) -> list[int]: ...
    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]: ...
    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]: ...

def main() -> None: ...
