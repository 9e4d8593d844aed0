"""Types of napier.CausalLM and napier.Tokenizer. Array: as in _napier.pyi."""

from functools import cached_property
from os import PathLike
from typing import Any, Callable, Literal, Mapping, NamedTuple, Optional, Sequence

Array = Any

class BatchLogprobs(NamedTuple):
    logprobs: Any
    token_ids: Any
    offsets: Any

class Scores(NamedTuple):
    logprobs: Any
    token_ids: Any
    offsets: Any
    entropy: Any
    argmax: Any
    is_greedy: Any

class Generated(NamedTuple):
    token_ids: Any
    offsets: Any
    logprobs: Any
    plain_logprobs: Any
    stopped: Any
    entropy: Any = None
    texts: Any = None
    stop: Any = None

class KV:
    nbytes: int
    def __init__(self, handle: Any, tokens: int, nbytes: int) -> None: ...
    def __len__(self) -> int: ...

class Tokenizer:
    def __len__(self) -> int: ...
    def __init__(self, path: str | bytes | PathLike[str]) -> None: ...
    @classmethod
    def from_pretrained(cls, path: str | PathLike[str]) -> Tokenizer: ...
    def encode(
        self, text: str | bytes, *, plain_special: bool = False, add_special_tokens: bool | Literal["once"] = False, continues: bool = False
    ) -> list[int]: ...
    def decode(self, ids: Array, *, skip_special: bool = False) -> str: ...
    def decode_bytes(self, ids: Array, *, skip_special: bool = False) -> bytes: ...
    def token(self, id: int) -> Optional[bytes]: ...
    def id_of(self, token: str | bytes) -> Optional[int]: ...
    def is_special(self, id: int) -> bool: ...
    @staticmethod
    def chat(
        messages: list[dict[str, Any]],
        *,
        tools: Optional[list[dict[str, Any] | str]] = None,
        add_generation_prompt: bool = True,
        disable_thinking: bool = False,
        format: str = "qwen3",
        date: Optional[str] = None,
    ) -> str: ...
    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Optional[list[dict[str, Any]]] = None,
        documents: Optional[list[dict[str, Any]]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        **variables: Any,
    ) -> str: ...

class CausalLM:
    @cached_property
    def tokenizer(self) -> Optional[Tokenizer]: ...
    info: dict[str, Any]
    directory: Optional[str]

    def __init__(
        self,
        directory: str | PathLike[str],
        *,
        compute: str = "float32",
        memory: int = 0,
        add_special_tokens: bool = True,
        adapter: Optional[str | PathLike[str]] = None,
    ) -> None: ...
    @classmethod
    def from_pretrained(
        cls,
        path: str | PathLike[str],
        *,
        compute: str = "float32",
        memory: int = 0,
        add_special_tokens: bool = True,
        adapter: Optional[str | PathLike[str]] = None,
    ) -> CausalLM: ...
    @classmethod
    def from_state_dict(
        cls,
        config: Any,
        state_dict: Mapping[str, Any],
        *,
        tokenizer: Any = None,
        compute: str = "float32",
        memory: int = 0,
        add_special_tokens: bool = True,
    ) -> CausalLM: ...
    @classmethod
    def from_model(
        cls, model: Any, *, tokenizer: Any = None, compute: str = "float32", memory: int = 0, add_special_tokens: bool = True
    ) -> CausalLM: ...
    def update(self, state_dict: Optional[Mapping[str, Any]] = None) -> None: ...
    def encode(self, text: str | bytes, **options: Any) -> list[int]: ...
    def decode(self, ids: Array, *, skip_special: bool = False) -> str: ...
    def head(self) -> Any: ...
    def forward(
        self,
        ids: Array,
        offsets: Optional[Any] = None,
        *,
        hidden: bool = False,
        logits: bool = True,
        progress: Optional[Callable[..., Any]] = None,
    ) -> Any: ...
    def logprobs_for(self, prompt: Array, response: Array, *, temperature: float = 1.0) -> Any: ...
    def batch_logprobs(
        self,
        prompts: Array,
        responses: Array,
        *,
        prompt_of: Optional[Any] = None,
        temperature: float = 1.0,
        prefix_token: Optional[int] = None,
        progress: Optional[Callable[..., Any]] = None,
    ) -> BatchLogprobs: ...
    def score(
        self,
        prompts: Array,
        responses: Array,
        *,
        prompt_of: Optional[Any] = None,
        temperature: float = 1.0,
        prefix_token: Optional[int] = None,
        entropy: bool = True,
        greedy: bool = True,
        unshared: bool = False,
        progress: Optional[Callable[..., Any]] = None,
        kvs: Sequence[KV] = (),
    ) -> Scores: ...
    def kv(self, prompt: Array, *, progress: Optional[Callable[..., Any]] = None, after: Optional[KV] = None) -> KV: ...
    def plan(
        self,
        prompts: Array,
        responses: Array,
        *,
        prompt_of: Optional[Any] = None,
        prefix_token: Optional[int] = None,
        unshared: bool = False,
        kvs: Sequence[KV] = (),
    ) -> dict[str, int]: ...
    def rewards(
        self,
        prompts: Array,
        responses: Optional[Array] = None,
        *,
        prompt_of: Optional[Any] = None,
        prefix_token: Optional[int] = None,
        progress: Optional[Callable[..., Any]] = None,
        kvs: Sequence[KV] = (),
    ) -> Any: ...
    def judge(
        self,
        prompts: Array,
        verdicts: Array,
        values: Array,
        *,
        weights: Optional[Any] = None,
        criteria: int = 1,
        temperature: float = 1.0,
        progress: Optional[Callable[..., Any]] = None,
    ) -> Any: ...
    def generate(
        self,
        prompts: Array,
        *,
        samples: int = 1,
        max_tokens: int = 16,
        stop: Optional[Array] = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        numbers: Optional[Array] = None,
        on_token: Optional[Callable[..., Any]] = None,
        kvs: Sequence[KV] = (),
        min_tokens: int = 0,
        entropy: bool = False,
        texts: bool = False,
        on_text: Optional[Callable[..., Any]] = None,
        on_kv: Optional[Callable[..., Any]] = None,
        arrivals: Optional[tuple[Callable[[], Any], int, int]] = None,
    ) -> Generated: ...

