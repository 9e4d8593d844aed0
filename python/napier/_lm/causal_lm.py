"""napier.CausalLM and napier.Tokenizer: per-token log-probabilities of responses given prompts, and samples, from a language
model in a directory or in memory."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import warnings
from os import PathLike
from typing import Any, Callable, Literal, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from .. import _napier
from . import adapters
from . import chat_template as chat_templates
from .._ops.logsumexp import _is_tensor
from .hub import TOKENIZER_FILES, folder_of, is_gguf, tokenizer_in


class BatchLogprobs(NamedTuple):
    """The result of batch_logprobs: values for each token of the responses, one response after another."""

    logprobs: Any
    token_ids: Any
    offsets: Any


class Scores(NamedTuple):
    """The result of score."""

    logprobs: Any
    token_ids: Any
    offsets: Any
    entropy: Any
    argmax: Any
    is_greedy: Any


class Generated(NamedTuple):
    """The result of generate: the tokens of each sequence, one sequence after another."""

    token_ids: Any
    offsets: Any
    logprobs: Any
    plain_logprobs: Any
    stopped: Any  # [B]: whether an id or a text of `stop` ended it
    entropy: Any = None  # with entropy=True: of the distribution of plain_logprobs
    texts: Any = None  # with texts=True: list of B texts, without special tokens and the text that ended it
    stop: Any = None  # list of B: the id or the text of `stop` that ended it, or None


class KV:
    """The keys and values of a beginning that many calls share, from CausalLM.kv or generate. len() is the number of its tokens, nbytes
    its size. It cannot be pickled."""

    nbytes: int

    __module__ = "napier"  # what help shows

    def __init__(self, handle: Any, tokens: int, nbytes: int) -> None:
        self._handle, self._tokens, self.nbytes = handle, tokens, nbytes

    def __len__(self) -> int:
        return self._tokens


class Tokenizer:
    """A BPE tokenizer from a tokenizer.json (a path, or the JSON itself as bytes), or from a GGUF file.

    Ids are those of Hugging Face tokenizers.

    Examples
    --------
    >>> import napier
    >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
    >>> tokenizer.decode(tokenizer.encode("Hello, world"))
    'Hello, world'
    >>> len(tokenizer)  # this one is small
    285
    """

    __module__ = "napier"  # what pickles and help show

    def __init__(self, path: str | bytes | PathLike[str]) -> None:
        self._handle = (_napier._tokenizer_from_json if isinstance(path, bytes) else _napier._tokenizer_load)(path)
        self._path = path
        self._template: Any = None  # of an object of transformers

    @classmethod
    def from_pretrained(cls, path: str | PathLike[str]) -> Tokenizer:
        """The tokenizer of a model: its directory, or OWNER/NAME on the Hugging Face hub, as in CausalLM.from_pretrained.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer.from_pretrained("Qwen3-0.6B")
        >>> tokenizer.decode(tokenizer.encode("Hello, world"))
        'Hello, world'
        """
        return cls(tokenizer_in(folder_of(path, TOKENIZER_FILES)))

    def __reduce__(self):
        return Tokenizer, (self._path if isinstance(self._path, bytes) else os.path.abspath(self._path),)

    def __len__(self) -> int:
        return _napier._tokenizer_vocab_size(self._handle)

    def encode(
        self, text: str | bytes, *, plain_special: bool = False, add_special_tokens: bool | Literal["once"] = False, continues: bool = False
    ) -> list[int]:
        """The ids of a text, as a list.

        Parameters
        ----------
        plain_special : bool
            Encode "<|im_end|>" and other special tokens as plain text.
        add_special_tokens : bool or "once"
            Whether to add those that the file's post_processor adds, such as Llama's BOS. "once": but not where the text begins with
            them already, as one by a chat template may.
        continues : bool
            The text continues another, as a response continues a prompt, so no space is put before it, as Llama 2's file asks for at
            the beginning of a text.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> len(tokenizer.encode("<|im_end|>")), len(tokenizer.encode("<|im_end|>", plain_special=True))
        (1, 10)
        """
        add = 2 if add_special_tokens == "once" else int(bool(add_special_tokens))
        return _napier._tokenizer_encode(self._handle, text, plain_special, add, int(continues))

    def decode(self, ids: Any, *, skip_special: bool = False) -> str:
        """The text of ids. Bytes that are not UTF-8 become U+FFFD, and ids without a token have no text, as in Hugging Face
        tokenizers.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> ids = tokenizer.encode("Hello<|im_end|>")
        >>> tokenizer.decode(ids), tokenizer.decode(ids, skip_special=True)
        ('Hello<|im_end|>', 'Hello')
        """
        return _napier._tokenizer_decode(self._handle, _ids(ids, "ids"), skip_special, 1).decode()

    def decode_bytes(self, ids: Any, *, skip_special: bool = False) -> bytes:
        """The bytes of ids.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> list(tokenizer.decode_bytes(tokenizer.encode("é")))
        [195, 169]
        """
        return _napier._tokenizer_decode(self._handle, _ids(ids, "ids"), skip_special, 0)

    def token(self, id: int) -> Optional[bytes]:
        """The bytes of the token with this id, or None.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> tokenizer.token(tokenizer.id_of("<|im_end|>"))
        b'<|im_end|>'
        """
        return _napier._tokenizer_token(self._handle, id)

    def id_of(self, token: str | bytes) -> Optional[int]:
        """The id of the token with exactly this text, or None.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> tokenizer.encode("<|im_end|>") == [tokenizer.id_of("<|im_end|>")], tokenizer.id_of("no such token")
        (True, None)
        """
        id = _napier._tokenizer_id(self._handle, token)
        return None if id < 0 else id

    def is_special(self, id: int) -> bool:
        """True if the id is that of an added token marked special.

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> [tokenizer.is_special(tokenizer.id_of(token)) for token in ("<|im_end|>", "<think>")]
        [True, False]
        """
        return _napier._tokenizer_is_special(self._handle, id)

    @staticmethod
    def chat(
        messages: list[dict[str, Any]],
        *,
        tools: Optional[list[dict[str, Any] | str]] = None,
        add_generation_prompt: bool = True,
        disable_thinking: bool = False,
        format: str = "qwen3",
        date: Optional[str] = None,
    ) -> str:
        """A conversation in a chat format that is built in, exactly as the published templates render it.

        apply_chat_template renders any model's own template.

        Parameters
        ----------
        messages : list of {"role": .., "content": ..}
            A message of the assistant may have "reasoning_content" and "tool_calls". "name" and "tool_call_id" are ignored, as by the
            template; any other key is an error.
        tools : list of tools, each a dict, or its JSON as a str
        format : 'qwen3', 'qwen2.5', 'llama3', 'llama3.1' (also 3.2 and 3.3), 'llama2', 'mistral-v0.1' or 'mistral-v0.2'
        date : str
            The day in llama3.1's system message; default "26 Jul 2024", as in its template.

        Examples
        --------
        >>> import napier
        >>> print(napier.Tokenizer.chat([{"role": "user", "content": "2 + 2?"}]), end="")
        <|im_start|>user
        2 + 2?<|im_end|>
        <|im_start|>assistant
        """
        rendered = [_message(f"messages[{i}]", m) for i, m in enumerate(messages)]
        described = "\n".join(map(_json, tools or ()))
        return _napier._chat_text(rendered, described, add_generation_prompt, disable_thinking, format, date).decode()

    def _chat_template(self):
        """The model's chat template (a text, a dict of name to text, or None), and its special tokens by name."""
        if self._template is None:
            if isinstance(self._path, bytes):
                self._template = None, {}
            elif is_gguf(self._path):
                self._template = chat_templates.of_config(json.loads(_napier._gguf_document(self._path, "tokenizer_config.json")))
            else:
                self._template = chat_templates.load(os.path.dirname(os.path.abspath(self._path)))
        return self._template

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
    ) -> str:
        """The text of a conversation by the model's own chat template, as apply_chat_template of transformers gives it with
        tokenize=False. The text has the BOS if the template writes it: encode it without
        add_special_tokens, or with "once".

        Parameters
        ----------
        messages : list of dicts
            Keys that are None are left out, as in transformers.
        tools, documents : lists of dicts
        chat_template : str
            A template, or the name of one of the model's. Default: the model's, from chat_template.jinja or tokenizer_config.json
            beside tokenizer.json.
        continue_final_message : bool or str
            The text ends where the last message's content does, so that the model goes on with it; or the name of the field to go on
            with, such as "reasoning_content".
        variables : what else the template reads, such as enable_thinking

        Examples
        --------
        >>> import napier
        >>> tokenizer = napier.Tokenizer("Qwen3-0.6B/tokenizer.json")
        >>> template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"  # default: the model's own
        >>> tokenizer.apply_chat_template([{"role": "user", "content": "2 + 2?"}], chat_template=template)
        '[user] 2 + 2?'
        """
        template, special = self._chat_template()
        return chat_templates.render(
            chat_templates.choose(template, chat_template, tools),
            special,
            messages,
            tools,
            documents,
            add_generation_prompt,
            continue_final_message,
            variables,
        )


class CausalLM:
    """A language model on the CPU, for log-probabilities of given responses and for samples. The bits are the same on every
    machine and in every batch. from_model and from_state_dict make one from weights in memory.

    Parameters
    ----------
    directory : path
        Has config.json, model.safetensors (or shards), and tokenizer.json if you pass texts; or a GGUF file of llama.cpp, whose
        quantised weights become float32, or bfloat16 if `compute` is not float32.
    compute : 'float32', 'bfloat16' or 'split'
        bfloat16: activations are rounded to bfloat16 before products, as in bf16 inference. split: float32's accuracy by three
        products of bfloat16, for weights of bfloat16 and processors with a matrix engine. Weights are used as stored.
    memory : int
        Bytes that a call may use besides the weights and its results; 0: 1 GiB.
    add_special_tokens : bool
        Whether prompts that are texts begin with the tokens that the tokenizer's post_processor adds, such as Llama's BOS, if
        they do not have them already. Qwen has none. Ids, responses and verdicts are taken as they are: a response continues
        its prompt, so write the space that it begins with.
    adapter : path
        A directory with a LoRA adapter of peft (adapter_config.json, adapter_model.safetensors), which is merged: the weights are
        W + scaling * (B A), in float32. What is not plain LoRA of the layers' products is refused by name.

    Examples
    --------
    >>> import napier
    >>> model = napier.CausalLM("Qwen3-0.6B")
    >>> model.info["family"], model.info["layers"]  # this one is small
    ('qwen3', 2)
    >>> logprobs, token_ids, offsets = model.batch_logprobs(["2 + 2 ="], [" 4"])
    >>> bool((logprobs < 0).all())
    True
    """

    info: dict[str, Any]
    directory: Optional[str]

    __module__ = "napier"  # what pickles and help show

    def __init__(
        self,
        directory: str | PathLike[str],
        *,
        compute: str = "float32",
        memory: int = 0,
        add_special_tokens: bool = True,
        adapter: Optional[str | PathLike[str]] = None,
    ) -> None:
        directory = folder_of(directory)
        if adapter is None:
            handle, tensors = _napier._model_load(directory, compute, int(memory)), {}
        else:
            adapter = folder_of(adapter, adapters.FILES)
            config, tensors = adapters.load(directory, adapter)
            handle = _napier._model_from_tensors(config, list(tensors), list(tensors.values()), compute, int(memory))
        self._start(handle, compute, memory, add_special_tokens)
        self._options["adapter"], self._tensors = adapter, tensors
        self.directory = os.fspath(directory)

    @functools.cached_property
    def tokenizer(self) -> Optional[Tokenizer]:
        """The Tokenizer of the model's directory, or None. It is read when it is first used, so a model whose tokenizer.json is
        refused still takes ids."""
        path = tokenizer_in(self.directory) if self.directory is not None else ""
        return Tokenizer(path) if os.path.exists(path) else None

    def _start(self, handle, compute, memory, add_special_tokens):
        self._handle = handle
        self._options = {"compute": compute, "memory": int(memory), "add_special_tokens": bool(add_special_tokens)}
        self._lock, self._calls, self._changed = threading.Lock(), 0, False
        self._source, self._tensors = None, {}
        self.directory = None
        self.info = _napier._model_info(handle)
        self._too_long = False  # whether it has warned

    @classmethod
    def from_pretrained(
        cls,
        path: str | PathLike[str],
        *,
        compute: str = "float32",
        memory: int = 0,
        add_special_tokens: bool = True,
        adapter: Optional[str | PathLike[str]] = None,
    ) -> CausalLM:
        """Loads a model from a local directory in the format of transformers, or from a GGUF file. OWNER/NAME, a model of the
        Hugging Face hub, is fetched by huggingface_hub, if it is installed: only the files that Napier reads.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM.from_pretrained("Qwen3-0.6B", compute="bfloat16")
        >>> model.info["compute"]
        'bfloat16'
        """
        return cls(path, compute=compute, memory=memory, add_special_tokens=add_special_tokens, adapter=adapter)

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
    ) -> CausalLM:
        """A model of weights in memory, which are used in place, without copies.

        Call update() after the weights have changed, also in place.

        Parameters
        ----------
        config : transformers' config of the model, a dict, or the text of a config.json
        state_dict : dict of name to tensor
            PyTorch tensors on the CPU, or arrays, of float32, float16 or bfloat16, contiguous. The model keeps them alive. Do
            not resize their storage, as FSDP does.
        tokenizer : a Tokenizer, one of transformers or tokenizers, or a tokenizer.json
            Without it, functions take ids only.

        Examples
        --------
        >>> import napier, transformers
        >>> theirs = transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B")
        >>> model = napier.CausalLM.from_state_dict(theirs.config, theirs.state_dict())
        >>> model.forward([5, 6, 7]).shape
        (3, 290)
        """
        self = cls.__new__(cls)
        names, arrays = _named(state_dict)
        self._start(
            _napier._model_from_tensors(_config_json(config), names, arrays, compute, int(memory)), compute, memory, add_special_tokens
        )
        self._tensors = arrays
        self.tokenizer = _tokenizer_of(tokenizer)
        return self

    @classmethod
    def from_model(
        cls, model: Any, *, tokenizer: Any = None, compute: str = "float32", memory: int = 0, add_special_tokens: bool = True
    ) -> CausalLM:
        """The same for a model of transformers on the CPU: it uses the weights of the model itself. After each step of an
        optimizer, update() is enough. LoRA adapters of peft are merged into copies in float32, again by each update().

        Examples
        --------
        >>> import napier, transformers
        >>> theirs = transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B")
        >>> model = napier.CausalLM.from_model(theirs, tokenizer="Qwen3-0.6B/tokenizer.json")
        >>> model.info["parameters"] == theirs.num_parameters()
        True
        """
        config = json.loads(_config_json(model.config))
        architecture = _architecture(adapters.base_of(model))
        if architecture is not None:
            config["architectures"] = [architecture]  # transformers has that of the checkpoint, until it saves
        self = cls.from_state_dict(
            config, adapters.state_dict(model), tokenizer=tokenizer, compute=compute, memory=memory, add_special_tokens=add_special_tokens
        )
        self._source = model
        return self

    def update(self, state_dict: Optional[Mapping[str, Any]] = None) -> None:
        """Takes changed weights: those of a state_dict with the same names, shapes and dtypes; without one, those of the model
        that from_model was given, or the ones that this model has, which have changed in place.

        Results of kv become stale, and later calls refuse them. After an error the model is as before. It raises RuntimeError
        while another call uses the model, as from on_token or another thread.

        Examples
        --------
        >>> import napier, torch, transformers
        >>> theirs = transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B")
        >>> model = napier.CausalLM.from_model(theirs)
        >>> before = model.logprobs_for([5, 6], [7])
        >>> with torch.no_grad():
        ...     _ = theirs.model.norm.weight.mul_(2)  # as a step of an optimizer does
        ...
        >>> model.update()
        >>> bool((model.logprobs_for([5, 6], [7]) == before).all())
        False
        """
        if state_dict is None and self._source is not None:
            state_dict = adapters.state_dict(self._source)
        if state_dict is not None and not state_dict:
            raise ValueError("state_dict: empty")
        names, arrays = _named(state_dict or {})
        with self._alone():
            _napier._model_update(self._handle, names, arrays)
        if state_dict is not None:
            self._tensors, self._changed = arrays, True

    @contextlib.contextmanager
    def _alone(self):
        with self._lock:
            if self._calls:
                raise RuntimeError("update: another call is using the model; wait for its end")
            self._calls = -1
        try:
            yield
        finally:
            self._calls = 0

    def _run(self, function, *arguments):
        """Calls a function of the model, which no update may change meanwhile."""
        with self._lock:
            if self._calls < 0:
                raise RuntimeError("the model is being updated; wait for its end")
            self._calls += 1
        try:
            return function(self._handle, *arguments)
        finally:
            with self._lock:
                self._calls -= 1

    def _note_length(self, tokens):
        """Warns once if this many tokens run as one sequence, and the model was trained for fewer."""
        most = self.info["positions"]
        if not self._too_long and tokens > most > 0:
            self._too_long = True
            warnings.warn(
                f"a sequence of {tokens} tokens is longer than the {most} positions that the model was trained for "
                "(max_position_embeddings)",
                stacklevel=3,
            )

    def __reduce__(self):
        if self.directory is None or self._changed:
            raise TypeError("a CausalLM of weights in memory cannot be pickled: save the weights, and use from_pretrained")
        return functools.partial(CausalLM, **self._options), (self.directory,)

    def __repr__(self):
        return (
            f"<CausalLM {self.info['family']}, {self.info['parameters']:,} parameters, {self.info['layers']} layers, "
            f"{self.info['compute']}>"
        )

    def encode(self, text: str | bytes, **options: Any) -> list[int]:
        """The ids of a text, from the model's tokenizer. Options as in Tokenizer.encode: by default, no token is added.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> model.decode(model.encode("Hello, world"))
        'Hello, world'
        """
        if self.tokenizer is None:
            raise ValueError("text: this model has no tokenizer (tokenizer.json, or tokenizer=); give ids")
        return self.tokenizer.encode(text, **options)

    def _encode(self, text, name):
        """The ids of a prompt, or of a response or verdict, which continues a prompt."""
        if name in ("prompt", "prompts"):
            return self.encode(text, add_special_tokens="once" if self._options["add_special_tokens"] else False)
        return self.encode(text, continues=True)

    def decode(self, ids: Any, *, skip_special: bool = False) -> str:
        """The text of ids. The rows of a head that is larger than the tokenizer have none.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> model.decode(model.encode("Hello<|im_end|>"), skip_special=True)
        'Hello'
        """
        if self.tokenizer is None:
            raise ValueError("ids: this model has no tokenizer (tokenizer.json, or tokenizer=)")
        rows, ids = self.info["vocabulary"], _ids(ids, "ids")
        if ids.size and ids.max() >= rows:
            raise ValueError(f"ids: {ids.max()}, but the model's ids lie below {rows}")
        return self.tokenizer.decode(ids, skip_special=skip_special)

    def head(self) -> Any:
        """A copy of the head's weights [vocabulary, hidden], of a reward model [labels, hidden], for linear_token_logprobs or torch.from_numpy. float32 and float16
        are copied as stored; bfloat16 is widened exactly to float32, because NumPy does not have it.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> hidden, logits = model.forward([5, 6, 7], hidden=True)
        >>> t = napier.linear_token_logprobs(hidden[:-1], model.head(), [6, 7])
        >>> bool((t.logprobs == model.logprobs_for([5], [6, 7])).all())
        True
        """
        return self._run(_napier._model_head)

    def forward(
        self, ids: Any, offsets: Any = None, *, hidden: bool = False, logits: bool = True, progress: Optional[Callable[..., Any]] = None
    ) -> Any:
        """The logits [N, V] of ids [N], float32. With hidden=True returns (hidden, logits), where hidden are the states after
        the last norm, which the head multiplies. offsets: the starts of several sequences, and the end of the last.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> logits = model.forward([5, 6, 7, 5, 6], offsets=[0, 3, 5])  # two sequences
        >>> bool((logits[3:] == logits[:2]).all())
        True
        """
        offsets = None if offsets is None else _ids(offsets, "offsets")
        ids = _ids(ids, "ids")
        self._note_length(len(ids) if offsets is None else np.diff(offsets).max(initial=0))
        h, z = self._run(_napier._model_forward, ids, offsets, hidden, logits, progress)
        return (h, z) if hidden else z

    def logprobs_for(self, prompt: Any, response: Any, *, temperature: float = 1.0) -> Any:
        """The log-probability of each token of a response [T] after a prompt. Both are texts or ids.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> logprobs = model.logprobs_for("2 + 2 =", " 4")
        >>> bool((logprobs < 0).all())
        True
        """
        return self.batch_logprobs([prompt], [response], temperature=temperature).logprobs

    def batch_logprobs(
        self,
        prompts: Any,
        responses: Any,
        *,
        prompt_of: Any = None,
        temperature: float = 1.0,
        prefix_token: Optional[int] = None,
        progress: Optional[Callable[..., Any]] = None,
    ) -> BatchLogprobs:
        """The log-probability of each token of many responses: (logprobs [T], token_ids [T], offsets [B + 1]).

        The three results are the input of napier.kl_per_response, rubric_score and grpo_loss.

        Parameters
        ----------
        prompts, responses : lists of texts, or of lists of ids
            Response b answers prompt b, or prompt prompt_of[b]. Equal prompts and common beginnings run once.
        prefix_token : int
            Replaces an empty prompt. Without it an empty prompt is an error.
        progress : function of (stage, done)
            If it returns a true value, the call stops.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> logprobs, token_ids, offsets = model.batch_logprobs(["2 + 2 ="], [" 4", " four"], prompt_of=[0, 0])
        >>> bool((logprobs[:offsets[1]] == model.logprobs_for("2 + 2 =", " 4")).all())
        True
        """
        scores = self.score(
            prompts,
            responses,
            prompt_of=prompt_of,
            temperature=temperature,
            prefix_token=prefix_token,
            progress=progress,
            entropy=False,
            greedy=False,
        )
        return BatchLogprobs(*scores[:3])

    def kv(self, prompt: Any, *, progress: Optional[Callable[..., Any]] = None, after: Optional[KV] = None) -> KV:
        """Runs a beginning, a text or ids, through the model, and keeps its keys and values for `kvs=` of other calls. The bits
        are the same with and without. after: another result of kv or generate, behind whose tokens the prompt goes on: only
        the prompt runs.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> kv = model.kv("You are a helpful assistant. ")
        >>> made = model.generate(["You are a helpful assistant. Hello!"], kvs=[kv], max_tokens=4)
        >>> len(kv) == len(model.encode("You are a helpful assistant. ")), kv.nbytes > 0
        (True, True)
        """
        ids = self._encode(prompt, "prompt") if isinstance(prompt, (str, bytes)) else prompt
        ids = _ids(ids, "prompt")
        tokens = len(ids) + (len(after) if after is not None else 0)
        self._note_length(tokens)
        handle, nbytes = self._run(_napier._model_kv, ids, progress, None if after is None else after._handle)
        return KV(handle, tokens, nbytes)

    def score(
        self,
        prompts: Any,
        responses: Any,
        *,
        prompt_of: Any = None,
        temperature: float = 1.0,
        prefix_token: Optional[int] = None,
        entropy: bool = True,
        greedy: bool = True,
        unshared: bool = False,
        progress: Optional[Callable[..., Any]] = None,
        kvs: Sequence[KV] = (),
    ) -> Scores:
        """batch_logprobs with the entropy of each token's distribution, the most probable token, and whether the response has
        that token. kvs: a prompt that begins with the tokens of one of these uses it.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> scores = model.score(["2 + 2 ="], [" 4"])
        >>> [name for name in scores._fields if getattr(scores, name) is not None]
        ['logprobs', 'token_ids', 'offsets', 'entropy', 'argmax', 'is_greedy']
        """
        lists = self._lists(prompts, responses, prompt_of)
        logprobs, entropies, argmax = self._run(
            _napier._model_scores,
            *lists,
            float(temperature),
            -1 if prefix_token is None else prefix_token,
            unshared,
            progress,
            _handles(kvs),
            entropy,
            greedy,
        )
        ids, offsets = lists[2], lists[3]
        return Scores(logprobs, ids, offsets, entropies, argmax, None if argmax is None else argmax == ids)

    def plan(
        self,
        prompts: Any,
        responses: Any,
        *,
        prompt_of: Any = None,
        prefix_token: Optional[int] = None,
        unshared: bool = False,
        kvs: Sequence[KV] = (),
    ) -> dict[str, int]:
        """The work of a call of batch_logprobs: a dict with the numbers of tokens that run through the model, of chunks and of
        bytes.

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> plan = model.plan([[5, 6, 7, 8]], [[9], [10, 11]], prompt_of=[0, 0])
        >>> plan["tokens_run"], plan["tokens_unshared"]  # the prompt runs once, not twice
        (5, 9)
        """
        lists = self._lists(prompts, responses, prompt_of)
        return self._run(_napier._model_plan, *lists, 1.0, -1 if prefix_token is None else prefix_token, unshared, None, _handles(kvs))

    def rewards(
        self,
        prompts: Any,
        responses: Any = None,
        *,
        prompt_of: Any = None,
        prefix_token: Optional[int] = None,
        progress: Optional[Callable[..., Any]] = None,
        kvs: Sequence[KV] = (),
    ) -> Any:
        """The outputs of a reward model (ForSequenceClassification) at the last token of each prompt and response: float32
        [B, labels].

        Parameters
        ----------
        prompts, responses, prompt_of, kvs : as score. Without responses, the prompts are the whole texts

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B-Reward")
        >>> model.rewards(["2 + 2 =", "2 + 2 ="], [" 4", " 5"]).shape
        (2, 1)
        """
        if responses is None:
            responses = [()] * len(prompts)
        lists = self._lists(prompts, responses, prompt_of, not_run=0)
        return self._run(_napier._model_rewards, *lists, 1.0, -1 if prefix_token is None else prefix_token, False, progress, _handles(kvs))

    def judge(
        self,
        prompts: Any,
        verdicts: Any,
        values: Any,
        *,
        weights: Any = None,
        criteria: int = 1,
        temperature: float = 1.0,
        progress: Optional[Callable[..., Any]] = None,
    ) -> Any:
        """Uses the model as a judge. Returns (scores [B, C], rewards [B], logprobs [B * C, V]).

        Parameters
        ----------
        prompts : list of B * C texts or lists of ids; prompt b * criteria + c asks about response b and criterion c
        verdicts : list of V texts or lists of ids, such as ["Yes", "No"]
        values : V numbers, the value of each verdict
        weights : C numbers, default 1

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> prompts = [f"Is {n} even? Reply with Yes or No. " for n in (4, 5)]
        >>> scores, rewards, logprobs = model.judge(prompts, ["Yes", "No"], [1.0, 0.0])
        >>> scores.shape, bool((rewards > 0).all() and (rewards < 1).all())
        ((2, 1), True)
        """
        prompt_ids, prompt_offsets = self._ragged(prompts, "prompts")
        verdict_ids, verdict_offsets = self._ragged(verdicts, "verdicts")
        weights = None if weights is None else np.asarray(weights, np.float32)
        self._note_length(np.diff(prompt_offsets).max(initial=0) + np.diff(verdict_offsets).max(initial=0) - 1)
        return self._run(
            _napier._model_judge,
            prompt_ids,
            prompt_offsets,
            criteria,
            verdict_ids,
            verdict_offsets,
            np.asarray(values, np.float64),
            weights,
            float(temperature),
            progress,
        )

    def generate(
        self,
        prompts: Any,
        *,
        samples: int = 1,
        max_tokens: int = 16,
        stop: Any = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        numbers: Any = None,
        on_token: Optional[Callable[..., Any]] = None,
        kvs: Sequence[KV] = (),
        min_tokens: int = 0,
        entropy: bool = False,
        texts: bool = False,
        on_text: Optional[Callable[..., Any]] = None,
        on_kv: Optional[Callable[..., Any]] = None,
        arrivals: Optional[tuple[Callable[[], Any], int, int]] = None,
    ) -> Generated:
        """Samples continuations of prompts: Generated(token_ids [T], offsets [B + 1], logprobs [T], plain_logprobs [T],
        stopped [B], entropy [T], texts [B], stop [B]), where sequence b is a sample of prompt b // samples.

        logprobs are under the distribution that a token was drawn from. plain_logprobs are without filters and penalties:
        score gives the same bits for the same tokens. A sequence depends only on its prompt, its number and the options, not
        on the others, the memory or the machine.

        Parameters
        ----------
        prompts : list of texts, or of lists of ids
        stop : ids and texts that end a sequence. It keeps an id as its last token, and all tokens of a text, whose bytes may
            lie in several tokens; its text ends before it. Without an id in the list, the model's end-of-text token is one.
            []: nothing ends a sequence early
        min_tokens : a sequence does not end with one of its first min_tokens tokens
        temperature, top_k, top_p, min_p : as napier.sample; temperature 0 is greedy
        numbers : B integers, the number of each sequence, from which its random numbers are drawn; default 0 .. B - 1
        entropy, texts : whether the result has them
        on_token : function of (sequence, index, id, logprob), called for each token; "end" ends the sequence with this token,
            any other true value cancels the call
        on_text : function of (sequence, text, ended), called for new text; no piece ends inside a character, or has a part of
            what may become a stop. A true value cancels
        kvs : results of kv; a prompt that begins with the tokens of one of these uses it
        on_kv : function of (sequence, kv), called when a sequence has ended, with the KV of its prompt and all its tokens but the
            last, for `kvs` of a call that goes on with it, such as the next turn of a conversation: it runs only what is new
        arrivals : (function, P, longest): before each step function() returns a list of (prompt, numbers) that join the call,
            which has up to P prompts in all, those after the first of up to `longest` tokens

        Examples
        --------
        >>> import napier
        >>> model = napier.CausalLM("Qwen3-0.6B")
        >>> made = model.generate(["2 + 2 ="], samples=2, max_tokens=8, temperature=0.8, texts=True)
        >>> len(made.texts), len(made.offsets)
        (2, 3)
        >>> again = model.generate(["2 + 2 ="], numbers=[1], max_tokens=8, temperature=0.8, texts=True)
        >>> again.texts[0] == made.texts[1]
        True
        """
        if isinstance(prompts, (str, bytes)):
            raise TypeError("prompts: expected a list of texts or of ids, got one text")
        stop_ids, stop_texts = self._stops(stop)
        needs_tokenizer = stop_texts or texts or on_text is not None
        if needs_tokenizer and self.tokenizer is None:
            raise ValueError("stop, texts, on_text: this model has no tokenizer (tokenizer.json, or tokenizer=), which texts need")
        numbers = None if numbers is None else _ids(numbers, "numbers")
        lists, arrived = self._ragged(prompts, "prompts"), None
        if arrivals is not None:
            arrived = _Arrivals(lists, numbers, samples, *arrivals)
            lists, numbers = (arrived.ids, arrived.offsets), arrived.numbers
        results = self._run(
            _napier._model_generate,
            *lists,
            samples,
            numbers,
            max_tokens,
            stop_ids,
            float(temperature),
            top_k,
            float(top_p),
            float(min_p),
            float(repetition_penalty),
            float(presence_penalty),
            float(frequency_penalty),
            seed,
            on_token,
            _handles(kvs),
            min_tokens,
            self.tokenizer._handle if needs_tokenizer else None,
            stop_texts,
            on_text,
            texts,
            entropy,
            None if on_kv is None else lambda b, *kv: on_kv(b, KV(*kv)),
            arrived,
            0 if arrived is None else arrived.longest,
        )
        if arrived is not None:
            there = slice(arrived.count * samples)
            lists, results = (None, arrived.offsets[: arrived.count + 1]), [None if x is None else x[there] for x in results]
        ids, lengths, logprobs, plain, entropies, which, made = results
        self._note_length((np.diff(lists[1]).repeat(samples) + lengths).max(initial=0) - 1)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        there = np.arange(ids.shape[1]) < lengths[:, None]
        last = ids[np.arange(len(ids)), lengths - 1]
        by_id = np.isin(last, stop_ids)
        why = [stop_texts[text] if text >= 0 else int(id) if ended else None for text, id, ended in zip(which, last, by_id)]
        return Generated(
            ids[there], offsets, logprobs[there], plain[there], by_id | (which >= 0), entropies[there] if entropy else None, made, why
        )

    def _stops(self, stop):
        """The ids and the texts of `stop`."""
        if isinstance(stop, (str, bytes)):
            raise TypeError(f"stop: expected a list of ids and texts, got {stop!r}")
        eos = self.info["eos_ids"]
        if stop is None:
            return _ids(eos, "stop"), []
        given = stop.tolist() if hasattr(stop, "tolist") else list(stop)
        texts = [s for s in given if isinstance(s, (str, bytes))]
        ids = [s for s in given if not isinstance(s, (str, bytes))]
        return _ids(eos if texts and not ids else ids, "stop"), texts

    def _lists(self, prompts, responses, prompt_of, not_run=1):
        if isinstance(responses, str) or isinstance(prompts, str):
            raise TypeError("prompts, responses: expected lists of texts or of ids, got one text")
        if prompt_of is None and len(prompts) != len(responses):
            raise ValueError(f"prompts: {len(prompts)} for {len(responses)} responses, and no prompt_of")
        prompt_of = None if prompt_of is None else _ids(prompt_of, "prompt_of")
        lists = *self._ragged(prompts, "prompts"), *self._ragged(responses, "responses")
        lengths, answers = np.diff(lists[1]), np.diff(lists[3])
        if len(lengths) and prompt_of is not None and len(prompt_of) == len(answers):
            lengths = lengths.take(prompt_of, mode="clip")  # what lies outside is refused later
        if len(lengths) == len(answers):
            self._note_length((lengths + answers).max(initial=0) - not_run)
        return *lists, prompt_of

    def _ragged(self, texts, name):
        """Returns all ids as one array, and the offsets of the lists."""
        lists = [self._encode(x, name) if isinstance(x, (str, bytes)) else _ids(x, name) for x in texts]
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(x) for x in lists], out=offsets[1:])
        return np.concatenate([np.asarray(x, np.int64) for x in lists] or [np.zeros(0, np.int64)]), offsets


def _named(state_dict):
    """The names of a state_dict, and its tensors without gradients: they keep the memory if a parameter gets other data."""
    return list(state_dict), [x.detach() if _is_tensor(x) else x for x in state_dict.values()]


def _config_json(config):
    if hasattr(config, "to_json_string"):
        return config.to_json_string(use_diff=False)
    return config if isinstance(config, (str, bytes)) else json.dumps(config)


def _architecture(model):
    """The class of transformers that a model is of, such as Qwen3ForCausalLM, or None."""
    names = [kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("transformers.")]
    return next((name for name in names if name.endswith(("ForCausalLM", "ForSequenceClassification"))), None)


def _tokenizer_of(tokenizer):
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    made = Tokenizer(backend.to_str().encode() if hasattr(backend, "to_str") else backend)
    if hasattr(tokenizer, "chat_template"):  # an object of transformers
        made._template = tokenizer.chat_template, dict(tokenizer.special_tokens_map)
    return made


class _Arrivals:
    """The lists of a call of generate, which grow while it runs."""

    def __init__(self, lists, numbers, samples, function, most, longest):
        self.function, self.samples, self.count = function, samples, len(lists[1]) - 1
        most, self.longest = max(most, self.count), max(longest, int(np.diff(lists[1]).max(initial=1)))
        self.ids, self.offsets = np.zeros(most * self.longest, np.int64), np.zeros(most + 1, np.int64)
        self.ids[: len(lists[0])], self.offsets[: len(lists[1])] = lists
        self.numbers = np.arange(most * samples)
        if numbers is not None:
            self.numbers[: self.count * samples] = numbers

    def __call__(self):
        """How many prompts are there."""
        for prompt, numbers in self.function():
            begin, prompt = self.offsets[self.count], _ids(prompt, "prompt")
            self.ids[begin : begin + len(prompt)] = prompt
            self.numbers[self.count * self.samples : (self.count + 1) * self.samples] = numbers
            self.count += 1
            self.offsets[self.count] = begin + len(prompt)
        return self.count


def _handles(kvs):
    return [kv._handle for kv in kvs]


def _json(value):
    """The JSON of a value as the template writes it. A str is JSON already."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _message(name, m):
    for key, value in m.items():
        if value is not None and key not in ("role", "content", "reasoning_content", "tool_calls", "name", "tool_call_id"):
            raise ValueError(f"{name}: {key!r} has no place in this chat format; leave it out")
    calls = [call.get("function") or call for call in m.get("tool_calls") or ()]
    content = m.get("content")
    if not isinstance(content, (str, bytes)) and not (content is None and calls):
        raise TypeError(f"{name}: content: expected a text, got {content!r}")
    return m["role"], content, m.get("reasoning_content"), [(call["name"], _json(call["arguments"])) for call in calls]


def _ids(ids, name):
    x = np.asarray(ids.detach().cpu() if _is_tensor(ids) else ids)
    if x.size == 0:
        return np.zeros(0, np.int64)
    if x.dtype.kind not in "iu" or x.ndim != 1:
        raise TypeError(f"{name}: expected one dimension of integers, got {x.ndim} of {x.dtype}")
    return np.ascontiguousarray(x, np.int64)
