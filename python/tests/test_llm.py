"""Language models generate the tokens that PyTorch generates."""

import json
import math
import threading
from pathlib import Path
from typing import Any, Optional

import pytest

import torchlet
from torchlet import _torchlet, llm

numpy = pytest.importorskip("numpy")

MODELS = Path(__file__).parents[2] / "llm"


def expected(path: str) -> Any:
    return json.loads((MODELS / path).read_text(encoding="utf-8"))


@pytest.fixture
def runner() -> llm.Runner:
    return llm.Runner(MODELS / "model/fp32.pte", threads=1)


def test_text_matches_pytorch(runner: llm.Runner) -> None:
    for case in expected("model/expected.json")[:2]:
        runner.reset()
        pieces: list[str] = []
        made = runner.generate(
            case["prompt"],
            num_bos=1,
            max_new_tokens=64,
            temperature=0.0,
            ignore_eos=True,
            on_text=pieces.append,
        )
        assert made.tokens == case["chosen"][:64]
        assert (
            "".join(pieces) == made.text
            and case["text"].endswith(made.text)
            or made.text in case["text"]
        )
        assert made.finish == "length"
        assert made.stats.prompt_tokens == len(case["ids"]) and made.stats.generated_tokens == 64
        assert made.stats.total >= made.stats.prefill > 0 and made.stats.decode_rate > 0
        assert json.loads(made.stats.json)["generated_tokens"] == 64
        # The last generated token is not in the context.
        assert runner.context == case["ids"] + case["chosen"][:63]
    assert runner.metadata["vocab_size"] == 1024 and runner.metadata["max_context_len"] == 512
    assert repr(runner).startswith("Runner(") and "of 512 tokens" in repr(runner)


def test_prompts_of_tokens_and_text_are_equal(runner: llm.Runner) -> None:
    tokens = runner.tokenizer.encode("In the beginning")
    assert runner.tokenizer.decode(tokens) == "In the beginning"
    assert runner.tokenizer.vocab_size == 1024
    first = runner.generate(tokens, max_new_tokens=8, temperature=0.0)
    other = runner.session()
    second = other.generate(
        ["In the", tokens[len(runner.tokenizer.encode("In the")) :]],
        max_new_tokens=8,
        temperature=0,
    )
    assert first.tokens == second.tokens
    for prompt in ("In the beginning", tokens):
        runner.reset()
        runner.prefill(prompt)
        assert runner.context == tokens
    logits = runner.logits
    assert logits is not None and int(logits.argmax()) == first.tokens[0]
    assert runner.generate(max_new_tokens=8, temperature=0.0).tokens == first.tokens
    runner.warmup("In")
    assert runner.context == [] and runner.logits is None


def test_dropped_streams_end_their_generation(runner: llm.Runner) -> None:
    whole = runner.generate("In the beginning", max_new_tokens=24, temperature=0.0).text
    runner.reset()
    assert "".join(runner.stream("In the beginning", max_new_tokens=24, temperature=0.0)) == whole
    runner.reset()
    stream = runner.stream("In the beginning", ignore_eos=True, temperature=0.0)
    assert next(stream)
    stream.close()
    assert len(runner.context) < 400
    with pytest.raises(torchlet.Error, match="the prompt is empty"):
        runner.reset()
        list(runner.stream(""))


def test_conversations(runner: llm.Runner) -> None:
    messages = [{"role": "user", "content": "Tell me about Moses."}]
    answer = runner.chat(messages, max_new_tokens=48, temperature=0.0)
    assert answer.text and answer.finish in ("stop", "length")
    fed = len(runner.context)
    messages += [
        {"role": "assistant", "content": answer.text},
        {"role": "user", "content": "And of Aaron?"},
    ]
    again = runner.chat(messages, max_new_tokens=8, temperature=0.0)
    # The context is reused, not prefilled again.
    assert again.stats.prompt_tokens < fed
    assert (
        "".join(runner.session().stream_chat(messages[:1], max_new_tokens=48, temperature=0.0))
        == answer.text
    )
    other = llm.Runner(
        torchlet.Module(MODELS / "model/fp32.pte"),
        MODELS / "model/tokenizer.json",
        chat_template="{{ 'In' }}",
    )
    other.chat(messages[:1], max_new_tokens=1, temperature=0.0)
    assert other.context == other.tokenizer.encode("In")


def test_schemas_and_seeds(runner: llm.Runner) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["Moses", "Aaron"]}},
        "required": ["name"],
    }
    made = runner.generate("Who?", json_schema=schema, seed=5, max_new_tokens=60)
    assert json.loads(made.text)["name"] in ("Moses", "Aaron") and made.finish == "stop"
    texts = set()
    for _ in range(2):
        runner.reset()
        texts.add(
            runner.generate("In the", seed=3, temperature=1.5, top_p=0.9, max_new_tokens=16).text
        )
    assert len(texts) == 1
    runner.reset()
    made = runner.generate("In the beginning", temperature=0.0, max_new_tokens=64, stop=",")
    assert made.finish == "stop" and "," not in made.text
    runner.reset()
    config = llm.GenerationConfig(
        sampling=llm.Sampling(temperature=0.0), max_new_tokens=64, stop=","
    )
    assert runner.generate("In the beginning", config).text == made.text
    runner.reset()
    forbidden = made.tokens[0]
    made = runner.generate(
        "In the beginning", temperature=0.0, max_new_tokens=1, logit_bias={forbidden: float("-inf")}
    )
    assert made.tokens != [forbidden]


def test_logprobs_and_penalties(runner: llm.Runner) -> None:
    made = runner.generate("In the beginning", temperature=0.0, max_new_tokens=30, logprobs=3)
    assert [told.token for told in made.logprobs] == made.tokens
    for told, behind in zip(made.logprobs, made.logprobs[1:]):
        assert told.top[0] == (told.token, told.logprob) and len(told.top) == 3
        assert sum(math.exp(logprob) for _, logprob in told.top) <= 1.00001
        assert (
            runner.tokenizer.decode([told.token]).strip() in made.text[told.offset : behind.offset]
        )
    runner.reset()
    plain = runner.generate("In the beginning", temperature=0.0, max_new_tokens=30)
    assert plain.tokens == made.tokens and plain.logprobs == []
    runner.reset()
    varied = runner.generate(
        "In the beginning",
        temperature=0.0,
        max_new_tokens=30,
        presence_penalty=2.0,
        frequency_penalty=1.0,
    )
    # Penalties may also end the text earlier; repeated tokens become rarer.
    most = [max(map(tokens.count, tokens)) for tokens in (varied.tokens, plain.tokens)]
    assert most[0] < most[1]


def test_callbacks_can_end_a_generation(runner: llm.Runner) -> None:
    def refuse(piece: str) -> None:
        raise LookupError(piece)

    with pytest.raises(LookupError):
        runner.generate("In the beginning", on_text=refuse)
    assert len(runner.context) < 64

    def nest(piece: str) -> None:
        runner.reset()

    with pytest.raises(torchlet.Error, match="callback") as caught:
        runner.generate("In the beginning", on_text=nest)
    assert caught.value.name == "InvalidState"
    runner.reset()
    started = threading.Event()
    made: list[llm.Generation] = []
    thread = threading.Thread(
        target=lambda: made.append(
            runner.generate("In the", ignore_eos=True, on_text=lambda _: started.set())
        )
    )
    thread.start()
    assert started.wait(60)
    runner.stop()
    thread.join()
    assert made[0].finish in ("stopped", "context")


def test_requests_cancelled_while_queued_feed_nothing(runner: llm.Runner) -> None:
    listens, goes_on = threading.Event(), threading.Event()

    def hear(piece: str) -> None:
        listens.set()
        goes_on.wait(60)

    config = llm.GenerationConfig(max_new_tokens=4, ignore_eos=True)
    first = threading.Thread(target=lambda: runner.generate("In the", config, on_text=hear))
    first.start()
    assert listens.wait(60)
    heard: list[Any] = []

    def listen() -> None:
        try:
            heard.extend(runner.stream("and he said unto them", config))
        except torchlet.Error as error:
            heard.append(str(error))

    others = set(llm._streams)
    second = threading.Thread(target=listen)
    second.start()
    while not (waiting := set(llm._streams) - others):
        second.join(0.001)
    # Waits until the first request's turn ends.
    (thread,) = waiting
    llm._streams[thread].end()
    goes_on.set()
    first.join()
    second.join()
    assert len(heard) == 1 and heard[0].startswith("the request was cancelled before its turn")
    assert len(runner.context) <= len(runner.tokenizer.encode("In the")) + 4


def test_cancelling_a_request_does_not_affect_the_next(runner: llm.Runner) -> None:
    turn = _torchlet.Turn()
    config = llm.GenerationConfig(max_new_tokens=8, ignore_eos=True)
    made = runner._generate("In the", config, lambda _: turn.end(), turn)
    assert made.finish == "stopped" and turn.is_over
    over = _torchlet.Turn()
    runner._generate("In the", config, None, over)
    # Its turn is already over.
    made = runner.generate("In the", config, on_text=lambda _: over.end())
    assert made.finish == "length"


def test_error_messages(runner: llm.Runner, tmp_path: Path) -> None:
    with pytest.raises(
        torchlet.Error, match="the context is full: 0 tokens and 600 new ones"
    ) as caught:
        runner.generate([5] * 600)
    assert caught.value.name == "OutOfResources"
    with pytest.raises(torchlet.Error, match="temperature is -1"):
        runner.generate("In", temperature=-1.0)
    with pytest.raises(TypeError):
        runner.generate("In", warmth=1)
    (tmp_path / "model.pte").write_bytes((MODELS / "model/fp32.pte").read_bytes())
    with pytest.raises(torchlet.Error, match="no tokenizer"):
        llm.Runner(tmp_path / "model.pte")
    with pytest.raises(torchlet.Error, match="tokenizer"):
        llm.Tokenizer(b"{}")
    digits = MODELS.parent / "tests/fixtures/digits/digits.pte"
    with pytest.raises(torchlet.Error, match="does not match a language model") as caught:
        llm.Runner(digits, MODELS / "model/tokenizer.json")
    assert caught.value.name == "InvalidProgram"


def test_sharded_models() -> None:
    forms, parts = MODELS / "forms", expected("forms/expected.json")["shards"][0]
    ends = llm.Overrides(eos_ids=[])
    runner = llm.Runner(
        [forms / "shards_0.pte", forms / "shards_1.pte"], llm.Tokenizer.empty(), overrides=ends
    )
    made = runner.generate(
        parts["ids"], temperature=0.0, max_new_tokens=len(parts["chosen"]), ignore_eos=True
    )
    assert made.tokens == parts["chosen"]


def test_images_and_audio() -> None:
    first, last, case = expected("forms/expected.json")["multimodal"]
    runner = llm.Runner(MODELS / "forms/multimodal.pte", llm.Tokenizer.empty())
    assert runner.image_input == ("float32", [1, 3, 16, 16]) and runner.audio_input == (
        "float32",
        [1, 8, 11],
    )
    pixels = numpy.array(case["picture"], "float32").reshape(16, 16, 3) / 255
    sound = numpy.array(case["sound"], "float32").reshape(1, 8, 11)
    prompt = [
        first["ids"],
        llm.Image(pixels.transpose(2, 0, 1)[None]),
        [9],
        llm.Audio(sound),
        last["ids"],
    ]
    chosen = case["chosen"]
    made = runner.generate(prompt, temperature=0.0, max_new_tokens=len(chosen), ignore_eos=True)
    assert made.tokens == chosen
    assert runner.context.count(None) == 9


def test_images_are_preprocessed_for_the_encoder() -> None:
    case = expected("forms/expected.json")["multimodal"][2]
    runner = llm.Runner(
        MODELS / "forms/multimodal.pte",
        llm.Tokenizer.empty(),
        chat_template="{{ messages[0].content }}",
    )
    points = numpy.array(case["picture"], "uint8").reshape(16, 16, 3)
    tensor = (points.astype("float32") / 255 - 0.5) / 0.25
    options = {"temperature": 0.0, "max_new_tokens": 6, "ignore_eos": True}

    def generated(*parts: Any) -> tuple[list[int], int]:
        runner.reset()
        made = runner.generate([[5, 6], *parts, [9]], llm.GenerationConfig(), **options)
        return made.tokens, made.stats.prompt_tokens

    whole = llm.Image(tensor.transpose(2, 0, 1)[None])
    wanted, tokens = generated(whole)
    assert generated(llm.RgbImage(points, mean=0.5, std=[0.25] * 3)) == (wanted, tokens)
    assert generated(llm.RgbImage(points, "canvas", mean=0.5, std=0.25)) == (wanted, tokens)
    # An image of twice the width becomes two tiles, and with `closest` a third one of the whole.
    wide = numpy.concatenate([points, points], 1)
    two = generated(whole, whole)
    assert generated(llm.RgbImage(wide, "canvas", mean=0.5, std=0.25)) == two
    each = two[1] - tokens
    assert generated(llm.RgbImage(wide, "closest", mean=0.5, std=0.25))[1] == tokens + 2 * each
    # Messages can contain images; this one has none.
    runner.reset()
    message = {"role": "user", "content": ["", llm.RgbImage(points, mean=0.5, std=0.25)]}
    made = runner.chat([message], llm.GenerationConfig(), **options)
    runner.reset()
    assert made.tokens == runner.generate([whole], llm.GenerationConfig(), **options).tokens
    assert made.stats.prompt_tokens == each and runner.context.count(None) == each
    for picture, wrong in [
        (llm.RgbImage(points, "diagonal"), "tiling: expected"),
        (llm.RgbImage(points, "canvas", tiles=0), "tiles is 0"),
        (llm.RgbImage(points, std=0.0), "nonzero ones for std"),
        (llm.RgbImage(points, mean=[0.0, 1.0]), "mean: expected 1 or 3 values, found 2"),
        (llm.RgbImage(tensor), "uint8"),
        (llm.RgbImage(points[:0]), "pixels"),
    ]:
        with pytest.raises(torchlet.Error, match=wrong):
            runner.generate([picture], **options)
    text = llm.Runner(MODELS / "model/fp32.pte", chat_template="{{ messages[0].role }}")
    with pytest.raises(torchlet.Error, match="0 placeholders for 1 images"):
        text.chat([{"role": "user", "content": [whole]}])


def test_template_arguments() -> None:
    template = "{{ 'In the' if enable_thinking | default(true) else messages[0].name }}{{ documents[0].n if documents }}"
    runner = llm.Runner(MODELS / "model/fp32.pte", chat_template=template)
    messages = [{"role": "user", "content": "x", "name": "Moses"}]

    def prompt(**arguments: Any) -> list[Optional[int]]:
        runner.chat(messages, template_arguments=arguments, max_new_tokens=1)
        return runner.context

    encode = runner.tokenizer.encode
    assert prompt() == encode("In the")
    assert prompt(enable_thinking=False, documents=[{"n": 7}]) == encode("Moses7")
    # Arguments do not affect the next call.
    assert prompt() == encode("In the")
    "".join(
        runner.stream_chat(
            messages, template_arguments={"enable_thinking": False}, max_new_tokens=1
        )
    )
    assert runner.context == encode("Moses")
    with pytest.raises(torchlet.Error, match="'messages' cannot be a template argument"):
        prompt(messages=[])


def test_tool_calls(runner: llm.Runner) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    call = {
        "type": "object",
        "properties": {"name": {"const": "add"}, "arguments": {"const": {"a": 1}}},
    }
    schema = {**call, "required": ["name", "arguments"], "additionalProperties": False}
    template = "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    other = llm.Runner(MODELS / "model/fp32.pte", chat_template=template)
    messages: list[Any] = [{"role": "user", "content": "In"}]
    made = other.chat(messages, tools=tools, json_schema=schema, max_new_tokens=100)
    assert made.text == "" and other.context[:1] != other.tokenizer.encode("In")[:1]
    (called,) = made.tool_calls
    assert called["function"]["name"] == "add" and json.loads(called["function"]["arguments"]) == {
        "a": 1
    }
    messages += [
        {"role": "assistant", "content": None, "tool_calls": made.tool_calls},
        {"role": "tool", "tool_call_id": called["id"], "content": "7"},
    ]
    assert runner.chat(messages, tools=tools, max_new_tokens=4, temperature=0.0).tool_calls == []
    with pytest.raises(torchlet.Error, match="'type' should be 'function'"):
        runner.chat(messages, tools=[{}])
    pieces = other.stream_chat(messages[:1], tools=tools, json_schema=schema, max_new_tokens=100)
    assert json.loads("".join(pieces)) == {"name": "add", "arguments": {"a": 1}}
    parted = [{"role": "user", "content": [{"type": "text", "text": "I"}, "n"]}]
    said = [
        runner.chat(spoken, max_new_tokens=4, temperature=0.0).text
        for spoken in (messages[:1], parted)
    ]
    assert said[0] == said[1]
    for wrong, what in [
        ({"content": "In"}, "lacks 'role'"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "not a part"),
    ]:
        with pytest.raises(torchlet.Error, match=what):
            runner.chat([wrong])


def test_speech() -> None:
    wanted, forms = expected("forms/speech.json"), MODELS / "forms"
    transcriber = llm.Transcriber(
        forms / "speech.pte", llm.Tokenizer.empty(), overrides=llm.Overrides(eos_ids=[9999])
    )
    said = transcriber.transcribe(forms / "speech.wav", start=wanted["start"])
    assert said.generation.tokens == wanted["chosen"]
    assert said.segments == [] and said.language is None
    wave = (forms / "speech.wav").read_bytes()
    assert transcriber.transcribe(wave, start=wanted["start"]).generation.tokens == wanted["chosen"]
    silence = numpy.zeros(1600, "float32")
    assert (
        transcriber.transcribe(
            silence, 16_000, start=wanted["start"], max_new_tokens=3
        ).generation.finish
        == "length"
    )
    with pytest.raises(torchlet.Error, match="sound"):
        transcriber.transcribe(b"RIFF", start=wanted["start"])


def test_speech_is_stopped_from_another_thread() -> None:
    forms, wanted = MODELS / "forms", expected("forms/speech.json")
    ends = llm.Overrides(eos_ids=[9999])
    transcriber = llm.Transcriber(forms / "speech.pte", llm.Tokenizer.empty(), overrides=ends)
    hour = numpy.zeros(3600 * 16_000, "float32")
    said: list[llm.Transcription] = []
    thread = threading.Thread(
        target=lambda: said.append(transcriber.transcribe(hour, 16_000, start=wanted["start"]))
    )
    thread.start()
    while thread.is_alive():
        transcriber.stop()
        thread.join(0.01)
    assert said[0].generation.finish == "stopped"
    # The next transcription runs to its end.
    again = transcriber.transcribe(forms / "speech.wav", start=wanted["start"])
    assert again.generation.tokens == wanted["chosen"]
