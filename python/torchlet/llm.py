"""Language models: from a `.pte` and a tokenizer to text.

    from torchlet.llm import Runner

    runner = Runner("model.pte")            # the tokenizer lies beside it
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
    "Picture",
    "Runner",
    "Sampling",
    "Segment",
    "Stats",
    "Tokenizer",
    "Transcriber",
    "Transcription",
]

#: What tokenizers and chat templates are called, where they lie beside their models.
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer.bin", "tekken.json", "tokenizer.tiktoken")
_TEMPLATES = ("chat_template.jinja", "tokenizer_config.json")

#: What is called with each piece of text.
Listener = Callable[[str], Any]


@dataclass(frozen=True)
class Overrides:
    """What is to be believed in place of what a program says of itself."""

    max_seq_len: Optional[int] = None
    max_context_len: Optional[int] = None
    bos_id: Optional[int] = None
    eos_ids: Optional[Sequence[int]] = None


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: What logits are divided by; 0 takes the likeliest token, always.
        top_k: Only so many of the likeliest tokens are considered; 0 is all.
        top_p: Only the likeliest tokens that together have this probability are considered.
        min_p: Only tokens are considered that are at least this part as likely as the likeliest.
        repetition_penalty: Makes tokens less likely that are in the context already; 1 is none.
        repetition_window: How many of the last tokens that looks at; 0 is all.
        frequency_penalty: What logits lose for each time that their token was generated before; 0 is none.
        presence_penalty: What logits lose once their token was generated before.
        logit_bias: What is added to the logits of tokens: a dictionary, or pairs; minus infinity forbids a token.
        seed: Where random numbers start: the same seed gives the same text.
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
    """How much is generated, and how.

    Attributes:
        sampling: How tokens are chosen.
        max_new_tokens: The most tokens to generate; as many as there is room for, unless set.
        seq_len: The most tokens in the context, those of the prompt and of earlier turns included.
        echo: Whether the prompt is given before what follows it.
        ignore_eos: Whether tokens that end a text are as any other.
        num_bos: How many of the token that is in front of a text go in front of a prompt that is text alone.
        num_eos: How many of the token that ends a text go behind it.
        stop: Texts that end the generation, and are no part of it; one, or several.
        lookahead: The most tokens that are fed before they are chosen, where the text had them before; 0 is none.
        logprobs: Of how many of the likeliest tokens it is told how likely they were, beside each that was chosen; of none at all, unless set.
        json_schema: The JSON schema that the text has to fit: a dictionary, or its JSON.
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
    """The config with what is given by name; what is sampling's goes there."""
    given = dict(options)
    names = Sampling.__dataclass_fields__
    sampling = {name: given.pop(name) for name in list(given) if name in names}
    if sampling:
        given["sampling"] = replace(given.get("sampling", config.sampling), **sampling)
    return replace(config, **given)


@dataclass(frozen=True)
class Image:
    """A picture in a prompt: a tensor as the program's encoder takes it (`Runner.image_input`), normalised as the model wants it."""

    tensor: Any


@dataclass(frozen=True)
class Audio:
    """A sound in a prompt: features as the program's encoder takes them (`Runner.audio_input`)."""

    tensor: Any


@dataclass(frozen=True)
class Picture:
    """A picture in a prompt, which becomes what the program's encoder takes: stretched to that size, or in tiles of it.

    Attributes:
        points: Red, green and blue from 0 to 255: a `uint8` tensor `[height, width, 3]`, such as `numpy.asarray(image)` of Pillow's.
        tiling: How it is cut: `"canvas"`, as Llama 3.2 Vision has it; `"closest"`, as InternVL; `"rows"`, as Idefics 3 and SmolVLM.
        tiles: How many tiles, at most; of rows, how many along the longer side.
        mean: What is subtracted from values from 0 to 1: one number, or one for each colour. Encoders of `uint8` take points as they are.
        std: What then divides them.
    """

    points: Any
    tiling: Optional[str] = None
    tiles: int = 4
    mean: Union[float, Sequence[float]] = 0.0
    std: Union[float, Sequence[float]] = 1.0


#: Text; tokens; or parts of a prompt in their order.
Prompt = Union[str, Sequence[Union[str, Sequence[int], Image, Audio, Picture]], Sequence[int]]
#: A message as OpenAI's API has it: `role`, `content`, `tool_calls` and `tool_call_id`. A list of content has texts, pictures and sounds. Other fields,
#: such as `name` and `reasoning_content`, are for templates that look at them.
ChatMessage = Mapping[str, Any]
#: A function as OpenAI's API has it.
Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Stats:
    """What a generation took: times are in seconds, rates in tokens a second.

    `json` is the object of ExecuTorch's `PyTorchObserver` line.
    """

    prompt_tokens: int
    generated_tokens: int
    foreseen_tokens: int
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
    """How likely a token was, by the logits that the program gave, before anything of `Sampling` changed them.

    Attributes:
        token: The token.
        logprob: The natural logarithm of its probability.
        likeliest: As many of the likeliest tokens as were asked for, with the logarithms of theirs.
        offset: Where in the text the token's begins.
    """

    token: int
    logprob: float
    likeliest: list[tuple[int, float]]
    offset: int


@dataclass(frozen=True)
class Generation:
    """What was generated.

    Attributes:
        text: The text without the prompt, and without calls of functions.
        tokens: All tokens that were chosen, that which ended the text included.
        finish: Why it ended: `"stop"`, `"length"`, `"context"` (which is full), or `"stopped"`.
        stats: What it took.
        tool_calls: The functions that the model calls, as OpenAI's API has it: the next messages have these, and what they gave.
        logprobs: How likely each of the tokens was, where that was asked for.
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
    return Generation(text, tokens, finish, Stats(**stats), called, [Logprobs(*told) for told in logprobs])


def _call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


class Tokenizer:
    """Text to tokens and back: files of Hugging Face, SentencePiece, tiktoken, Tekken and llama2.c.

    Arguments:
        source: The file: a path, bytes, or a file that is open.
    """

    def __init__(self, source: Source) -> None:
        self._native = _torchlet.Tokenizer.open(as_source(source))

    @staticmethod
    def empty() -> "Tokenizer":
        """A tokenizer without tokens, for models that are fed tokens and asked for these."""
        made = object.__new__(Tokenizer)
        made._native = _torchlet.Tokenizer.empty()
        return made

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text. Names of special tokens are these, unless `special` is false."""
        return self._native.encode(text, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._native.decode(tokens)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self._native.vocab_size

    @property
    def bos(self) -> Optional[int]:
        """The token in front of a text, if there is one."""
        return self._native.bos

    @property
    def eos(self) -> Optional[int]:
        """The token that ends a text, if there is one."""
        return self._native.eos

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, bos={self.bos}, eos={self.eos})"


def _beside(source: Any, names: Sequence[str]) -> Optional[Path]:
    """The first file of these names in the folder of a file."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    return next((path for name in names if (path := Path(source).with_name(name)).is_file()), None)


def _tokenizer(tokenizer: Any, model: Any) -> tuple[Tokenizer, Optional[Path]]:
    """The tokenizer, given or beside the model, and its file."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer, None
    if tokenizer is None:
        tokenizer = _beside(model, _TOKENIZERS)
        if tokenizer is None:
            names = ", ".join(_TOKENIZERS)
            raise invalid_argument(f"no tokenizer: name one, or put one beside the model, as {names}")
    path = Path(tokenizer) if isinstance(tokenizer, (str, os.PathLike)) else None
    return Tokenizer(tokenizer), path


def _opened(model: Any, options: Mapping[str, Any]) -> _torchlet.Module:
    if isinstance(model, Module):
        if options:
            raise invalid_argument(f"{', '.join(options)}: the module is open already")
        return model._native
    return Module(model, **options)._native


# The threads of streams, and what ends each.
_streams: weakref.WeakKeyDictionary[threading.Thread, _torchlet.Turn] = weakref.WeakKeyDictionary()


def _end(thread: threading.Thread, turn: _torchlet.Turn) -> None:
    """Ends a stream, and waits for that; but not on its own thread, where a collection of garbage may come by."""
    turn.end()
    if thread is not threading.current_thread():
        thread.join()


@atexit.register
def _end_all() -> None:
    """Before the interpreter goes, which a thread that computes must not meet."""
    for thread, turn in list(_streams.items()):
        _end(thread, turn)


class Runner:
    """A language model with its tokenizer, and the tokens that it has seen.

    Each generation goes on behind what the one before left in the caches; `reset` starts anew. Any thread may call it; calls come one after
    the other, and the interpreter's lock is released meanwhile. `session` gives another over the same weights.

    Arguments:
        model: A `.pte` file, or a `Module`; several are the parts of one model, in their order.
        tokenizer: The tokenizer or its file; else one that lies beside the model.
        chat_template: How `chat` makes a prompt of messages: a file, or Jinja text; else what lies beside the tokenizer, or what its special
            tokens say.
        overrides: What is to be believed in place of what the program says of itself.
        options: What else `Module` takes: `backend`, `threads`, `map`, ...
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
            raise invalid_argument("a model has one program at least")
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
        """Generates text behind a prompt, which goes behind what was fed before; an empty one goes on where the last generation ended.

        `on_text` is called with each piece, of whole characters; what it raises ends the generation. `options` are attributes of
        `GenerationConfig` and `Sampling`: `max_new_tokens=64, temperature=0.0`.
        """
        return self._generate(prompt, _configured(config, options), on_text)

    def _generate(
        self, prompt: Prompt, config: GenerationConfig, on_text: Optional[Listener], turn: Optional[_torchlet.Turn] = None
    ) -> Generation:
        if isinstance(prompt, str):
            return _generation(self._native.generate(prompt, config, on_text, turn))
        parts = list(prompt)
        if parts and all(isinstance(part, int) for part in parts):
            parts = [parts]
        return _generation(self._native.generate_from([_part(part) for part in parts], config, on_text, turn))

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
        """Generates the next message of a conversation, whose messages have a `role` and a `content`. What of it was fed before is not fed again,
        unless there are pictures or sounds in it: a list of content has these among its texts.

        `tools` are functions that may be called: `Generation.tool_calls` has the calls, which `on_text` hears as the model writes them.
        `template_arguments` are what else the chat template is given: `{"enable_thinking": False}`, say.
        """
        return self._chat(messages, _configured(config, options), on_text, tools=tools or (), arguments=template_arguments)

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
        made, calls = self._native.chat(spoken, functions, json.dumps(dict(arguments or {})), config, on_text, turn)
        return _generation(made, calls)

    def stream(
        self, prompt: Prompt = "", config: GenerationConfig = GenerationConfig(), **options: Any
    ) -> Iterator[str]:
        """The text of `generate`, piece by piece. Whoever stops listening ends the generation."""
        return self._streamed(lambda hear, turn: self._generate(prompt, _configured(config, options), hear, turn))

    def stream_chat(
        self,
        messages: Sequence[ChatMessage],
        config: GenerationConfig = GenerationConfig(),
        *,
        tools: Optional[Sequence[Tool]] = None,
        template_arguments: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> Iterator[str]:
        """The text of `chat`, piece by piece, calls of functions as the model writes them."""
        configured = _configured(config, options)
        return self._streamed(lambda hear, turn: self._chat(messages, configured, hear, turn, tools or (), template_arguments))

    def _streamed(self, generate: Callable[[Listener, _torchlet.Turn], Generation]) -> Iterator[str]:
        pieces: queue.SimpleQueue[Union[str, BaseException, None]] = queue.SimpleQueue()
        # Unlike `stop`, it also ends a generation that waits for its turn, and no other.
        turn = _torchlet.Turn()

        def hear(piece: str) -> None:
            if turn.is_over:
                raise _Over
            pieces.put(piece)

        def work() -> None:
            try:
                generate(hear, turn)
                pieces.put(None)
            except BaseException as error:  # It is raised where somebody listens.
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
        """Feeds a text, or tokens, and generates nothing."""
        if isinstance(prompt, str):
            self._native.prefill(prompt)
        else:
            self._native.prefill_tokens(list(prompt))

    def warmup(self, prompt: str, tokens: int = 4) -> None:
        """Generates a few tokens behind a prompt and forgets them, so that what is made when it is first needed has been made."""
        self._native.warmup(prompt, tokens)

    def reset(self) -> None:
        """Forgets everything: the caches have their first values again."""
        self._native.reset()

    def stop(self) -> None:
        """Ends the generation in progress, from another thread."""
        self._native.stop()

    def session(self) -> "Runner":
        """Another runner over the same program, with caches of its own."""
        other = object.__new__(Runner)
        other.tokenizer = self.tokenizer
        other._native = self._native.session()
        return other

    @property
    def context(self) -> list[Optional[int]]:
        """The tokens that were fed; `None` stands for each place of a picture or a sound."""
        return self._native.context()

    @property
    def logits(self) -> Optional[Any]:
        """The logits of the token that was fed last, unless another was chosen by them."""
        logits = self._native.logits()
        return None if logits is None else _arrays.maker(_arrays.default_library())(logits)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the program says of itself, such as `max_context_len` and `eos_ids`."""
        return self._native.metadata()

    @property
    def image_input(self) -> Optional[tuple[str, list[int]]]:
        """Element type and shape of what the program takes as a picture, if it takes any."""
        return self._native.takes()[0]

    @property
    def audio_input(self) -> Optional[tuple[str, list[int]]]:
        """Element type and shape of what the program takes as a sound, if it takes any."""
        return self._native.takes()[1]

    def __repr__(self) -> str:
        metadata = self.metadata
        return f"Runner({len(self.context)} of {metadata['max_context_len']} tokens, {self.tokenizer!r})"


class _Over(Exception):
    """Nobody listens to a generation any more."""


def _part(part: Any) -> tuple[str, Any]:
    if isinstance(part, str):
        return "text", part
    if isinstance(part, (Image, Audio)):
        kind = type(part).__name__.lower()
        return kind, _arrays.as_input(part.tensor, 0, f"{kind} encoder")
    if isinstance(part, Picture):
        points = _arrays.as_input(part.points, 0, "picture")
        return "picture", (points, part.tiling, part.tiles, _channels(part.mean), _channels(part.std))
    if isinstance(part, Mapping):
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            wanted = "these are texts, a Picture, an Image, an Audio, or a 'text' of that type"
            raise invalid_argument(f"{part!r} is no part of a message: {wanted}")
        return "text", part["text"]
    return "tokens", list(part)


def _channels(values: Union[float, Sequence[float]]) -> list[float]:
    return [float(value) for value in values] if isinstance(values, Iterable) else [float(values)]


#: Fields of a message that are told by themselves.
_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def _message(
    message: ChatMessage,
) -> tuple[str, list[tuple[str, Any]], list[tuple[str, str, str]], Optional[str], list[tuple[str, str]]]:
    content = message.get("content")
    parts = [content or ""] if content is None or isinstance(content, str) else content
    try:
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
        ]
        role = message["role"]
    except KeyError as missing:
        raise invalid_argument(f"a message lacks {missing}") from None
    others = [(name, json.dumps(value)) for name, value in message.items() if name not in _FIELDS and value is not None]
    return role, [_part(part) for part in parts], calls, message.get("tool_call_id"), others


@dataclass(frozen=True)
class Segment:
    """Text, and when it was said, in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcription:
    """What was said in a sound: the text, the segments where timestamps were asked for, and the language that was found or given."""

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
    """A program that hears and writes, as Optimum exports Whisper.

    Arguments:
        model: The program, or a `Module`.
        tokenizer: The tokenizer or its file; else one that lies beside the model.
        generation_config: Hugging Face's file of that name; else one that lies beside the tokenizer.
        overrides: What is to be believed in place of what the program says of itself.
        options: What else `Module` takes.
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
        self, sound: Any, rate: Optional[int] = None, *, on_text: Optional[Listener] = None, **options: Any
    ) -> Transcription:
        """Writes down what is said in a WAV, FLAC or MP3 file (a path, bytes, or a file that is open), or in an array of samples from -1 to 1 at a rate.

        `options` are `language` (as Whisper calls it: `"en"`), `translate`, `timestamps`, `max_new_tokens`, `start` (the tokens that the decoder
        is fed first), and attributes of `Sampling`. Without them, the likeliest tokens are taken.
        """
        config = _configured(_TranscriptionConfig(), options)
        given = as_source(sound) if rate is None else _arrays.as_input(sound, 0, "transcribe")
        made, segments, language = self._native.transcribe(given, rate, config, on_text)
        generation = _generation(made)
        return Transcription(generation.text, [Segment(*segment) for segment in segments], language, generation)

    def stop(self) -> None:
        """Ends the transcription in progress, from another thread: it gives what was written down until then."""
        self._native.stop()
