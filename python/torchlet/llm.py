"""Language models: text generation with a `.pte` program and a tokenizer.

from torchlet.llm import Runner

runner = Runner("model.pte")            # with a tokenizer file beside it
for piece in runner.stream("In those days", max_new_tokens=64, temperature=0.0):
    print(piece, end="", flush=True)
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional, Union

from torchlet import _arrays, _torchlet
from torchlet._errors import invalid_argument
from torchlet._module import Module, Source, as_source

__all__ = [
    "Audio",
    "Generation",
    "GenerationConfig",
    "Image",
    "Logprobs",
    "Overrides",
    "RgbImage",
    "Runner",
    "Sampling",
    "Segment",
    "Stats",
    "Tokenizer",
    "Transcriber",
    "Transcription",
]

#: Names of tokenizer and chat template files that are looked for beside models.
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.bin",
    "tekken.json",
    "tokenizer.tiktoken",
)
_TEMPLATES = ("chat_template.jinja", "tokenizer_config.json")

#: Called with each piece of text.
Listener = Callable[[str], Any]


@dataclass(frozen=True)
class Overrides:
    """Overrides of the program's metadata."""

    max_seq_len: Optional[int] = None
    max_context_len: Optional[int] = None
    bos_id: Optional[int] = None
    eos_ids: Optional[Sequence[int]] = None


@dataclass(frozen=True)
class Sampling:
    """Sampling options.

    Attributes:
        temperature: Divisor of the logits; 0 is greedy sampling.
        top_k: Sample from this many most likely tokens; 0 disables the limit.
        top_p: Sample from the most likely tokens with this total probability (nucleus sampling).
        min_p: Sample from tokens with at least this fraction of the highest probability.
        repetition_penalty: Penalty for tokens that are in the context; 1 disables it.
        repetition_window: Number of last tokens that the repetition penalty considers; 0 is all.
        frequency_penalty: Subtracted from a logit per previous occurrence in the generated text.
        presence_penalty: Subtracted from a logit once if the token was generated before.
        logit_bias: Added to the logits of tokens: a dictionary or pairs; minus infinity forbids a
            token.
        seed: Random seed, for reproducible text.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Union[Mapping[int, float], Sequence[tuple[int, float]]] = ()
    seed: Optional[int] = None

    def __post_init__(self) -> None:
        if isinstance(self.logit_bias, Mapping):
            object.__setattr__(self, "logit_bias", tuple(self.logit_bias.items()))


@dataclass(frozen=True)
class GenerationConfig:
    """Generation options.

    Attributes:
        sampling: Sampling options.
        max_new_tokens: Maximum tokens to generate; limited by the context only by default.
        seq_len: Maximum tokens in the context, including the prompt and earlier turns.
        echo: Whether the text starts with the prompt.
        ignore_eos: Whether to continue after EOS tokens.
        num_bos: Number of BOS tokens before a prompt that is plain text.
        num_eos: Number of EOS tokens after it.
        stop: One or several stop strings, which are excluded from the text.
        lookahead: Maximum tokens per step of lookahead decoding, which guesses repetitions of
            earlier text; 0 disables it.
        logprobs: Number of most likely tokens to report with log probabilities, in addition to the
            chosen one; `None` reports no log probabilities.
        json_schema: JSON schema that the text must match: a dictionary, or JSON text.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: Optional[int] = None
    seq_len: Optional[int] = None
    echo: bool = False
    ignore_eos: bool = False
    num_bos: int = 0
    num_eos: int = 0
    stop: Union[str, Sequence[str]] = ()
    lookahead: int = 0
    logprobs: Optional[int] = None
    json_schema: Union[str, Mapping[str, Any], None] = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if isinstance(self.json_schema, Mapping):
            object.__setattr__(self, "json_schema", json.dumps(self.json_schema))


def _configured(config: Any, options: Mapping[str, Any]) -> Any:
    """Applies keyword options to a config; sampling options go to its `sampling`."""
    given = dict(options)
    names = Sampling.__dataclass_fields__
    sampling = {name: given.pop(name) for name in list(given) if name in names}
    if sampling:
        given["sampling"] = replace(given.get("sampling", config.sampling), **sampling)
    return replace(config, **given)


@dataclass(frozen=True)
class Image:
    """An image in a prompt: a preprocessed tensor for the vision encoder (`Runner.image_input`)."""

    tensor: Any


@dataclass(frozen=True)
class Audio:
    """Audio in a prompt: features for the audio encoder (`Runner.audio_input`)."""

    tensor: Any


@dataclass(frozen=True)
class RgbImage:
    """An image in a prompt, to be resized or tiled for the vision encoder.

    Attributes:
        points: RGB pixels from 0 to 255: a `uint8` tensor `[height, width, 3]`, such as
            `numpy.asarray(image)` of a Pillow image.
        tiling: The tiling: `"canvas"` as in Llama 3.2 Vision, `"closest"` as in InternVL, or
            `"rows"` as in Idefics 3 and SmolVLM.
        tiles: Maximum number of tiles; for `"rows"`, the number along the longer side.
        mean: Mean to subtract from values from 0 to 1: one value, or one per channel. Not applied
            for `uint8` encoders.
        std: Standard deviation to divide by after that.
    """

    points: Any
    tiling: Optional[str] = None
    tiles: int = 4
    mean: Union[float, Sequence[float]] = 0.0
    std: Union[float, Sequence[float]] = 1.0


#: Text, tokens, or parts of a prompt in order.
Prompt = Union[str, Sequence[Union[str, Sequence[int], Image, Audio, RgbImage]], Sequence[int]]
#: A message in OpenAI's format: `role`, `content`, `tool_calls` and `tool_call_id`. A content list
#: has texts, images and audio. Other fields, such as `name` and `reasoning_content`, are passed to
#: the template.
ChatMessage = Mapping[str, Any]
#: A function in OpenAI's format.
Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Stats:
    """Statistics of a generation: times in seconds, rates in tokens per second.

    `json` is the content of ExecuTorch's `PyTorchObserver` line.
    """

    prompt_tokens: int
    generated_tokens: int
    accepted_tokens: int
    load: float
    prefill: float
    first_token: float
    total: float
    sampling: float
    execution: float
    prefill_rate: float
    decode_rate: float
    json: str


@dataclass(frozen=True)
class Logprobs:
    """Log probability of a token, from the raw logits, before `Sampling` options apply.

    Attributes:
        token: The token.
        logprob: Its log probability (natural logarithm).
        top: The requested number of most likely tokens, with their log probabilities.
        offset: Character offset of the token in the text.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]]
    offset: int


@dataclass(frozen=True)
class Generation:
    """Result of a generation.

    Attributes:
        text: The text without the prompt and without function calls.
        tokens: All generated tokens, including the one that ended the text.
        finish: Finish reason: `"stop"`, `"length"`, `"context"` (the context is full), or
            `"stopped"`.
        stats: Statistics.
        tool_calls: The model's function calls in OpenAI's format; append them, and their results,
            to the next messages.
        logprobs: Log probabilities of the tokens, if requested.
    """

    text: str
    tokens: list[int]
    finish: str
    stats: Stats
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)


def _generation(made: _torchlet.Generated, calls: Sequence[tuple[str, str]] = ()) -> Generation:
    text, tokens, logprobs, finish, stats = made
    called = [_call(name, arguments) for name, arguments in calls]
    return Generation(
        text, tokens, finish, Stats(**stats), called, [Logprobs(*told) for told in logprobs]
    )


def _call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


class Tokenizer:
    """A tokenizer of Hugging Face, SentencePiece, tiktoken, Tekken or llama2.c.

    Arguments:
        source: The file: a path, bytes, or an open file.
    """

    def __init__(self, source: Source) -> None:
        self._native = _torchlet.Tokenizer.open(as_source(source))

    @staticmethod
    def empty() -> "Tokenizer":
        """A tokenizer without tokens, for models that are used with token ids only."""
        made = object.__new__(Tokenizer)
        made._native = _torchlet.Tokenizer.empty()
        return made

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Encodes a text. Names of special tokens are parsed as such, unless `special` is false."""
        return self._native.encode(text, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decodes tokens to text."""
        return self._native.decode(tokens)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        return self._native.vocab_size

    @property
    def bos(self) -> Optional[int]:
        """The BOS token, if any."""
        return self._native.bos

    @property
    def eos(self) -> Optional[int]:
        """The EOS token, if any."""
        return self._native.eos

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, bos={self.bos}, eos={self.eos})"


def _beside(source: Any, names: Sequence[str]) -> Optional[Path]:
    """The first existing file of these names in the folder of `source`."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    return next((path for name in names if (path := Path(source).with_name(name)).is_file()), None)


def _tokenizer(tokenizer: Any, model: Any) -> tuple[Tokenizer, Optional[Path]]:
    """The given tokenizer, or one beside the model, and its file."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer, None
    if tokenizer is None:
        tokenizer = _beside(model, _TOKENIZERS)
        if tokenizer is None:
            names = ", ".join(_TOKENIZERS)
            raise invalid_argument(
                f"no tokenizer: pass one, or put one next to the model, named one of {names}"
            )
    path = Path(tokenizer) if isinstance(tokenizer, (str, os.PathLike)) else None
    return Tokenizer(tokenizer), path


def _opened(model: Any, options: Mapping[str, Any]) -> _torchlet.Module:
    if isinstance(model, Module):
        if options:
            raise invalid_argument(f"{', '.join(options)}: not allowed with an opened Module")
        return model._native
    return Module(model, **options)._native


# Threads of streams, and the turns that cancel them.
_streams: weakref.WeakKeyDictionary[threading.Thread, _torchlet.Turn] = weakref.WeakKeyDictionary()


def _end(thread: threading.Thread, turn: _torchlet.Turn) -> None:
    """Ends a stream and joins its thread, unless called on it, by the garbage collector."""
    turn.end()
    if thread is not threading.current_thread():
        thread.join()


@atexit.register
def _end_all() -> None:
    """Ends all streams before the interpreter finalizes, which running threads would crash."""
    for thread, turn in list(_streams.items()):
        _end(thread, turn)


class Runner:
    """A language model with its tokenizer and context.

    Each generation continues the context of the previous one; `reset` clears it. Any thread may
    call it; calls are serialized, and release the GIL. `session` creates another runner over the
    same weights.

    Arguments:
        model: A `.pte` file or a `Module`; a list contains the shards of one model, in order.
        tokenizer: The tokenizer or its file; by default, a file beside the model.
        chat_template: The chat template: a file or Jinja text; by default, a file beside the
            tokenizer, or a template that matches its special tokens.
        overrides: Overrides of the program's metadata.
        options: Other options of `Module`: `backend`, `threads`, `map`, ...
    """

    def __init__(
        self,
        model: Union[Source, Module, Sequence[Union[str, "os.PathLike[str]", Module]]],
        tokenizer: Union[Source, Tokenizer, None] = None,
        *,
        chat_template: Optional[Union[str, "os.PathLike[str]"]] = None,
        overrides: Overrides = Overrides(),
        **options: Any,
    ) -> None:
        parts = list(model) if isinstance(model, (list, tuple)) else [model]
        if not parts:
            raise invalid_argument("model: expected at least one program, found an empty list")
        self.tokenizer, path = _tokenizer(tokenizer, parts[0])
        programs = [_opened(part, options) for part in parts]
        self._native = _torchlet.Runner.open(programs, self.tokenizer._native, overrides)
        if chat_template is not None:
            is_file = isinstance(chat_template, os.PathLike) or os.path.isfile(chat_template)
            source = Path(chat_template) if is_file else chat_template
            if not self._native.set_chat_template(source):
                raise invalid_argument(f"{chat_template} has no chat template")
        elif (beside := _beside(path, _TEMPLATES)) is not None:
            self._native.set_chat_template(beside)

    def generate(
        self,
        prompt: Prompt = "",
        config: GenerationConfig = GenerationConfig(),
        *,
        on_text: Optional[Listener] = None,
        **options: Any,
    ) -> Generation:
        """Appends a prompt to the context and generates text.

        An empty prompt continues the last generation. `on_text` is called with each piece of text,
        in whole characters; an exception in it ends the generation. `options` are attributes of
        `GenerationConfig` and `Sampling`: `max_new_tokens=64, temperature=0.0`.
        """
        return self._generate(prompt, _configured(config, options), on_text)

    def _generate(
        self,
        prompt: Prompt,
        config: GenerationConfig,
        on_text: Optional[Listener],
        turn: Optional[_torchlet.Turn] = None,
    ) -> Generation:
        if isinstance(prompt, str):
            return _generation(self._native.generate(prompt, config, on_text, turn))
        parts = list(prompt)
        if parts and all(isinstance(part, int) for part in parts):
            parts = [parts]
        return _generation(
            self._native.generate_from([_part(part) for part in parts], config, on_text, turn)
        )

    def chat(
        self,
        messages: Sequence[ChatMessage],
        config: GenerationConfig = GenerationConfig(),
        *,
        tools: Optional[Sequence[Tool]] = None,
        template_arguments: Optional[Mapping[str, Any]] = None,
        on_text: Optional[Listener] = None,
        **options: Any,
    ) -> Generation:
        """Generates the next message of a conversation.

        Messages have a `role` and a `content`. Their common prefix with the context is reused,
        unless the messages contain images or audio, as parts of a content list.

        `tools` are functions that the model may call. `Generation.tool_calls` has the calls;
        `on_text` receives their text as the model writes it. `template_arguments` are additional
        template variables, such as `{"enable_thinking": False}`.
        """
        return self._chat(
            messages,
            _configured(config, options),
            on_text,
            tools=tools or (),
            arguments=template_arguments,
        )

    def _chat(
        self,
        messages: Sequence[ChatMessage],
        config: GenerationConfig,
        on_text: Optional[Listener],
        turn: Optional[_torchlet.Turn] = None,
        tools: Sequence[Tool] = (),
        arguments: Optional[Mapping[str, Any]] = None,
    ) -> Generation:
        spoken = [_message(message) for message in messages]
        functions = [json.dumps(tool) for tool in tools]
        made, calls = self._native.chat(
            spoken, functions, json.dumps(dict(arguments or {})), config, on_text, turn
        )
        return _generation(made, calls)

    def stream(
        self, prompt: Prompt = "", config: GenerationConfig = GenerationConfig(), **options: Any
    ) -> Iterator[str]:
        """Streams the text of `generate`. Closing the iterator ends the generation."""
        return self._streamed(
            lambda hear, turn: self._generate(prompt, _configured(config, options), hear, turn)
        )

    def stream_chat(
        self,
        messages: Sequence[ChatMessage],
        config: GenerationConfig = GenerationConfig(),
        *,
        tools: Optional[Sequence[Tool]] = None,
        template_arguments: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> Iterator[str]:
        """Streams the text of `chat`, including function calls as the model writes them."""
        configured = _configured(config, options)
        return self._streamed(
            lambda hear, turn: self._chat(
                messages, configured, hear, turn, tools or (), template_arguments
            )
        )

    def _streamed(
        self, generate: Callable[[Listener, _torchlet.Turn], Generation]
    ) -> Iterator[str]:
        pieces: queue.SimpleQueue[Union[str, BaseException, None]] = queue.SimpleQueue()
        # Unlike `stop`, it also cancels a waiting generation, and never another one.
        turn = _torchlet.Turn()

        def hear(piece: str) -> None:
            if turn.is_over:
                raise _Over
            pieces.put(piece)

        def work() -> None:
            try:
                generate(hear, turn)
                pieces.put(None)
            except BaseException as error:  # Raised again in the consumer's thread.
                pieces.put(error)

        thread = threading.Thread(target=work, name="torchlet.llm", daemon=True)
        _streams[thread] = turn
        thread.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            _end(thread, turn)

    def prefill(self, prompt: Union[str, Sequence[int]]) -> None:
        """Feeds text or tokens without generating."""
        if isinstance(prompt, str):
            self._native.prefill(prompt)
        else:
            self._native.prefill_tokens(list(prompt))

    def warmup(self, prompt: str, tokens: int = 4) -> None:
        """Generates and discards a few tokens, so that caches and pipelines are initialized."""
        self._native.warmup(prompt, tokens)

    def reset(self) -> None:
        """Clears the context and resets the caches."""
        self._native.reset()

    def stop(self) -> None:
        """Stops the current generation, from another thread."""
        self._native.stop()

    def session(self) -> "Runner":
        """Another runner over the same program, with separate caches."""
        other = object.__new__(Runner)
        other.tokenizer = self.tokenizer
        other._native = self._native.session()
        return other

    @property
    def context(self) -> list[Optional[int]]:
        """The tokens in the context; `None` for each position of an image or audio."""
        return self._native.context()

    @property
    def logits(self) -> Optional[Any]:
        """The logits after the last token, unless a token was sampled from them."""
        logits = self._native.logits()
        return None if logits is None else _arrays.maker(_arrays.default_library())(logits)

    @property
    def metadata(self) -> dict[str, Any]:
        """The program's metadata, such as `max_context_len` and `eos_ids`."""
        return self._native.metadata()

    @property
    def image_input(self) -> Optional[tuple[str, list[int]]]:
        """Element type and shape of image inputs, if supported."""
        return self._native.takes()[0]

    @property
    def audio_input(self) -> Optional[tuple[str, list[int]]]:
        """Element type and shape of audio inputs, if supported."""
        return self._native.takes()[1]

    def __repr__(self) -> str:
        metadata = self.metadata
        return f"Runner({len(self.context)} of {metadata['max_context_len']} tokens, {self.tokenizer!r})"


class _Over(Exception):
    """Ends a generation whose stream was closed."""


def _part(part: Any) -> tuple[str, Any]:
    if isinstance(part, str):
        return "text", part
    if isinstance(part, (Image, Audio)):
        kind = type(part).__name__.lower()
        return kind, _arrays.as_input(part.tensor, 0, f"{kind} encoder")
    if isinstance(part, RgbImage):
        points = _arrays.as_input(part.points, 0, "picture")
        return "picture", (
            points,
            part.tiling,
            part.tiles,
            _channels(part.mean),
            _channels(part.std),
        )
    if isinstance(part, Mapping):
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            wanted = "a str, a RgbImage, an Image, an Audio, or a dictionary of type 'text'"
            raise invalid_argument(f"{part!r} is not a part of a message: expected {wanted}")
        return "text", part["text"]
    return "tokens", list(part)


def _channels(values: Union[float, Sequence[float]]) -> list[float]:
    return [float(value) for value in values] if isinstance(values, Iterable) else [float(values)]


#: Message fields with special treatment.
_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def _message(
    message: ChatMessage,
) -> tuple[
    str, list[tuple[str, Any]], list[tuple[str, str, str]], Optional[str], list[tuple[str, str]]
]:
    content = message.get("content")
    parts = [content or ""] if content is None or isinstance(content, str) else content
    try:
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        role = message["role"]
    except KeyError as missing:
        raise invalid_argument(f"a message lacks {missing}") from None
    others = [
        (name, json.dumps(value))
        for name, value in message.items()
        if name not in _FIELDS and value is not None
    ]
    return role, [_part(part) for part in parts], calls, message.get("tool_call_id"), others


@dataclass(frozen=True)
class Segment:
    """A segment of a transcription, with start and end in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcription:
    """A transcription: text, segments if timestamps were requested, and the language."""

    text: str
    segments: list[Segment]
    language: Optional[str]
    generation: Generation


@dataclass(frozen=True)
class _TranscriptionConfig:
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.0))
    language: Optional[str] = None
    translate: bool = False
    timestamps: bool = False
    max_new_tokens: Optional[int] = None
    start: Optional[Sequence[int]] = None


class Transcriber:
    """A speech recognition model, such as Whisper exported by Optimum.

    Arguments:
        model: The program, or a `Module`.
        tokenizer: The tokenizer or its file; by default, a file beside the model.
        generation_config: Hugging Face's file of that name; by default, one beside the tokenizer.
        overrides: Overrides of the program's metadata.
        options: Other options of `Module`.
    """

    def __init__(
        self,
        model: Union[Source, Module],
        tokenizer: Union[Source, Tokenizer, None] = None,
        *,
        generation_config: Optional[Union[str, "os.PathLike[str]"]] = None,
        overrides: Overrides = Overrides(),
        **options: Any,
    ) -> None:
        self.tokenizer, path = _tokenizer(tokenizer, model)
        config = generation_config or _beside(path, ["generation_config.json"])
        text = None if config is None else Path(config).read_text(encoding="utf-8")
        program = _opened(model, options)
        self._native = _torchlet.Transcriber.open(program, self.tokenizer._native, overrides, text)

    def transcribe(
        self,
        sound: Any,
        rate: Optional[int] = None,
        *,
        on_text: Optional[Listener] = None,
        **options: Any,
    ) -> Transcription:
        """Transcribes speech.

        `sound` is a WAV, FLAC or MP3 file (path, bytes, or open file), or an array of samples from
        -1 to 1 at `rate`. `options` are `language` (such as `"en"`), `translate`, `timestamps`,
        `max_new_tokens`, `start` (the initial decoder tokens), and attributes of `Sampling`. The
        default is greedy sampling.
        """
        config = _configured(_TranscriptionConfig(), options)
        given = as_source(sound) if rate is None else _arrays.as_input(sound, 0, "transcribe")
        made, segments, language = self._native.transcribe(given, rate, config, on_text)
        generation = _generation(made)
        return Transcription(
            generation.text, [Segment(*segment) for segment in segments], language, generation
        )

    def stop(self) -> None:
        """Stops the current transcription from another thread; it returns the text so far."""
        self._native.stop()
