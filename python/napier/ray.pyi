"""Types of napier.ray."""

from os import PathLike
from typing import Any, Mapping, Optional, Sequence

__all__ = ["Generate", "Judge", "Logprobs"]

class Generate:
    def __init__(
        self,
        model: str | PathLike[str],
        *,
        prompt: str = "prompt",
        number: str = "number",
        samples: int = 1,
        compute: str = "float32",
        memory: int = 0,
        threads: int = 0,
        **options: Any,
    ) -> None: ...
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]: ...

class Logprobs:
    def __init__(
        self,
        model: str | PathLike[str],
        *,
        prompt: str = "prompt",
        response: str = "response",
        compute: str = "float32",
        memory: int = 0,
        threads: int = 0,
        **options: Any,
    ) -> None: ...
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]: ...

class Judge:
    def __init__(
        self,
        model: str | PathLike[str],
        criteria: Sequence[str | Mapping[str, Any]],
        *,
        verdicts: Optional[Mapping[str, float]] = None,
        template: Optional[str] = None,
        chat: Optional[str] = "qwen3",
        prompt: str = "prompt",
        response: str = "response",
        temperature: float = 1.0,
        compute: str = "float32",
        memory: int = 0,
        threads: int = 0,
    ) -> None: ...
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]: ...
