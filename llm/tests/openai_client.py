"""Tests `torchlet serve` with OpenAI's own client, and with misbehaving clients.

torchlet serve llm/model/8da4w.pte --port 8123 --api-key secret
torchlet serve llm/model/8da4w.pte full=llm/model/fp32.pte --port 8123 --api-key secret
pip install openai && python llm/tests/openai_client.py 8123 secret
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import urllib.request

import openai

PORT, KEY = int(sys.argv[1]), sys.argv[2]
BASE = f"http://127.0.0.1:{PORT}"
PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}]
# "In those days" after BOS, in tokens of this repository's model.
TOKENS = [0, 44, 81, 562, 706]
QUESTION = [{"role": "user", "content": "Tell me about bread."}]


def raw(text: bytes, wait: float = 5.0) -> bytes:
    with socket.create_connection(("127.0.0.1", PORT), timeout=wait) as connection:
        connection.sendall(text)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def post(body: bytes, path: str = "/v1/chat/completions", key: str = KEY) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    return raw(head.encode() + body, 60)


def metric(name: str) -> float:
    request = urllib.request.Request(f"{BASE}/metrics", headers={"authorization": f"Bearer {KEY}"})
    lines = urllib.request.urlopen(request).read().decode().splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith((f"torchlet_{name} ", f"torchlet_{name}{{"))
    )


def several(client: openai.OpenAI, names: list[str], options: dict) -> None:
    """Concurrent requests get the output of the model they name; unknown models are errors."""
    for wrong in ({"model": "gpt-5"}, {"model": ""}):
        try:
            client.chat.completions.create(**(options | wrong))
            raise SystemExit(f"{wrong} was taken")
        except openai.NotFoundError as refused:
            assert refused.code == "model_not_found" and all(
                name in refused.body["message"] for name in names
            )
    try:
        client.models.retrieve("gpt-5")
        raise SystemExit("another model was told of")
    except openai.NotFoundError as refused:
        assert refused.code == "model_not_found"
    expected = {}
    for name in names:
        answer = client.chat.completions.create(**(options | {"model": name}))
        assert answer.model == name == client.models.retrieve(name).id
        expected[name] = answer.choices[0].message.content
    assert len(set(expected.values())) > 1, expected

    results: dict[str, list[float]] = {name: [] for name in names}
    refused = []

    def one(name: str) -> None:
        try:
            start = time.time()
            streamed = client.chat.completions.create(**(options | {"model": name}), stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
            assert text == expected[name], (name, text)
            results[name].append(time.time() - start)
        except openai.RateLimitError:
            refused.append(name)

    # The first model gets five times as many requests, which do not delay the others.
    asked = names[:1] * 200 + names[1:] * 40
    threads = [threading.Thread(target=one, args=(name,)) for name in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, times in results.items():
        assert len(times) >= 40, (name, len(times), len(refused))
        print(
            f"{name}: {len(times)} answers, median {sorted(times)[len(times) // 2]:.2f} s"
        )
    assert len(refused) + sum(map(len, results.values())) == len(asked)
    assert not set(refused) & set(names[1:]), "a model with room refused"


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weigh",
            "description": "Weighs bread.",
            "parameters": {
                "type": "object",
                "properties": {
                    "grams": {"$ref": "#/$defs/weight"},
                    "kind": {"enum": ["rye", "wheat"]},
                },
                "required": ["grams", "kind"],
                "additionalProperties": False,
                "$defs": {"weight": {"type": "integer", "minimum": 1, "maximum": 999}},
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "bake",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


def functions(client: openai.OpenAI, options: dict) -> None:
    """Function calls: forced, streamed and whole; their results; and text without a call."""
    weigh = {"type": "function", "function": {"name": "weigh"}}
    for choice, names in (("required", {"weigh", "bake"}), (weigh, {"weigh"})):
        asked = options | {"tools": TOOLS, "tool_choice": choice}
        whole = client.chat.completions.create(**asked).choices[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
        (call,) = whole.message.tool_calls
        arguments = json.loads(call.function.arguments)
        assert call.type == "function" and call.id and call.function.name in names, call
        if call.function.name == "weigh":
            assert 1 <= arguments["grams"] <= 999 and arguments["kind"] in ("rye", "wheat"), (
                arguments
            )
        chunks = list(client.chat.completions.create(**asked, stream=True))
        deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        # The name comes first, then the arguments in pieces.
        assert [(delta.index, delta.function.name) for delta in deltas] == [
            (0, call.function.name)
        ] + [(0, None)] * (len(deltas) - 1), deltas
        assert (
            deltas[0].id
            and deltas[0].type == "function"
            and not any(delta.id for delta in deltas[1:])
        )
        assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments, (
            deltas
        )
        assert len(deltas) > 2 or call.function.name == "bake", deltas
        with client.chat.completions.stream(**asked) as events:
            for event in events:
                pass
            (told,) = events.get_final_completion().choices[0].message.tool_calls
        assert (told.function.name, told.function.arguments) == (
            call.function.name,
            call.function.arguments,
        )
        assert not any(chunk.choices[0].delta.content for chunk in chunks), chunks
    told = [
        *QUESTION,
        whole.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "500"},
    ]
    answer = client.chat.completions.create(
        **(options | {"messages": told, "tools": TOOLS, "max_tokens": 10})
    ).choices[0]
    assert (
        answer.message.content
        and not answer.message.tool_calls
        and answer.finish_reason != "tool_calls"
    ), answer
    plain = client.chat.completions.create(
        **(options | {"tools": TOOLS, "tool_choice": "none"})
    ).choices[0]
    untold = client.chat.completions.create(**options).choices[0]
    assert plain.message.content == untold.message.content


def likelihoods(client: openai.OpenAI, options: dict) -> None:
    """Log probabilities in both APIs, streamed and whole; several prompts; penalties."""
    asked = options | {"logprobs": True, "top_logprobs": 5}
    whole = client.chat.completions.create(**asked).choices[0]
    content = whole.logprobs.content
    assert "".join(token.token for token in content) == whole.message.content
    assert b"".join(bytes(token.bytes) for token in content).decode() == whole.message.content
    assert all(
        token.top_logprobs[0].logprob == token.logprob and len(token.top_logprobs) == 5
        for token in content
    )
    chunks = client.chat.completions.create(**asked, stream=True)
    logprobs = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token for told in logprobs if told for token in told.content] == content
    assert client.chat.completions.create(**options).choices[0].logprobs is None

    prompt = {
        "model": options["model"],
        "prompt": "In those days",
        "temperature": 0,
        "max_tokens": 12,
        "logprobs": 3,
    }
    whole = client.completions.create(**prompt).choices[0]
    told = whole.logprobs
    assert (
        "".join(told.tokens) == whole.text
        and len(told.token_logprobs) == len(told.top_logprobs) == 12
    )
    assert all(
        whole.text[offset:].startswith(token)
        for offset, token in zip(told.text_offset, told.tokens)
    )
    chunks = [
        chunk.choices[0].logprobs for chunk in client.completions.create(**prompt, stream=True)
    ]
    assert [offset for chunk in chunks if chunk for offset in chunk.text_offset] == told.text_offset

    several = options | {"temperature": 1, "seed": 3, "n": 4}
    whole = client.chat.completions.create(**several)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1 and whole.usage.completion_tokens > 20, texts
    streamed = ["", "", "", ""]
    for chunk in client.chat.completions.create(**several, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts, (streamed, texts)
    assert len(client.completions.create(**prompt, n=2, best_of=2).choices) == 2

    longer = options | {"max_tokens": 80}
    usual = client.chat.completions.create(**longer).choices[0].message.content
    varied = (
        client.chat.completions.create(**longer, presence_penalty=1.5, frequency_penalty=0.5)
        .choices[0]
        .message.content
    )
    assert usual != varied


def main() -> None:
    client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
    name = client.models.list().data[0].id
    assert client.models.retrieve(name).id == name
    options = {"model": name, "messages": QUESTION, "temperature": 0, "max_tokens": 20}
    whole = client.chat.completions.create(**options)
    text = whole.choices[0].message.content
    assert (
        text and whole.usage.completion_tokens == 20 and whole.choices[0].finish_reason == "length"
    )
    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text and chunks[-1].usage.completion_tokens == 20, (streamed, text)
    plain = client.completions.create(
        model=name, prompt="In those days", max_tokens=8, seed=1, stop=["zzz"]
    )
    assert plain.choices[0].text and plain.usage.total_tokens > 8
    again = client.completions.create(model=name, prompt="In those days", max_tokens=8, seed=1)
    assert again.choices[0].text == plain.choices[0].text
    # The same prompt as tokens: BOS and "In those days".
    tokens = client.completions.create(model=name, prompt=TOKENS, max_tokens=8, seed=1)
    assert tokens.choices[0].text == plain.choices[0].text and tokens.usage == plain.usage, tokens

    number = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 0, "maximum": 99}},
    }
    told = client.chat.completions.create(**(options | {"response_format": number}))
    assert 0 <= int(told.choices[0].message.content) <= 99, told

    names = [model.id for model in client.models.list()]
    if len(names) > 1:
        several(client, names, options)

    functions(client, options | {"max_tokens": 120})
    likelihoods(client, options)

    for wrong, error in (
        ({"n": 17}, openai.BadRequestError),
        ({"top_logprobs": 3}, openai.BadRequestError),
        ({"presence_penalty": 3}, openai.BadRequestError),
        ({"temperature": -1}, openai.BadRequestError),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "sausage"}},
                }
            },
            openai.BadRequestError,
        ),
        ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, openai.BadRequestError),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}},
            openai.BadRequestError,
        ),
        (
            {"tools": TOOLS, "tool_choice": "required", "response_format": number},
            openai.BadRequestError,
        ),
        ({"messages": [{"role": "user", "content": PICTURE}]}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, openai.BadRequestError),
    ):
        try:
            client.chat.completions.create(**(options | wrong))
            raise SystemExit(f"{wrong} was taken")
        except error as refused:
            print("refused:", refused.body["message"][:100])
    try:
        openai.OpenAI(base_url=f"{BASE}/v1", api_key="wrong").models.list()
        raise SystemExit("a wrong key was taken")
    except openai.AuthenticationError:
        pass

    for body, status in (
        (b"", b"400"),
        (b"{", b"400"),
        (b"\xff" * 100, b"400"),
        (b"[" * 100000, b"400"),
    ):
        assert post(body).startswith(b"HTTP/1.1 " + status), (body[:10], post(body)[:100])
    assert raw(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n").startswith(
        b"HTTP/1.1 413"
    )
    assert raw(b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 20000).startswith(b"HTTP/1.1 431")
    assert b"<title>" in raw(b"GET / HTTP/1.1\r\n\r\n")
    assert raw(
        b"GET /nowhere HTTP/1.1\r\nauthorization: Bearer " + KEY.encode() + b"\r\n\r\n"
    ).startswith(b"HTTP/1.1 404")

    # Slow clients wait in the background and block nobody else.
    slow = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
    start = time.time()
    client.chat.completions.create(**options)
    print(f"with 100 slow clients: {time.time() - start:.2f} s")
    for connection in slow:
        connection.close()

    # Clients that disconnect release the session.
    before = metric("generations_abandoned_total")
    body = json.dumps(
        {
            "model": name,
            "messages": QUESTION,
            "stream": True,
            "max_tokens": 400,
            "logit_bias": {"1": -100, "3": -100},
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    for _ in range(5):
        connection = socket.create_connection(("127.0.0.1", PORT))
        connection.sendall(head.encode() + body)
        connection.recv(200)
        connection.close()
    client.chat.completions.create(**options)
    print("abandoned:", metric("generations_abandoned_total") - before)
    assert metric("generations_abandoned_total") - before >= 4

    # Hundreds of concurrent requests: each is answered, or rejected because the queue is full.
    results: list[str] = []

    def one() -> None:
        try:
            found = client.chat.completions.create(**options)
            results.append("ok" if found.choices[0].message.content == text else "other text")
        except openai.RateLimitError:
            results.append("429")
        except openai.InternalServerError:
            results.append("503")

    threads = [threading.Thread(target=one) for _ in range(300)]
    start = time.time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        f"300 at once in {time.time() - start:.1f} s:",
        {kind: results.count(kind) for kind in set(results)},
    )
    assert len(results) == 300 and "other text" not in results and results.count("ok") > 50
    assert metric("generations_running") == metric("generations_waiting") == 0
    print("all right")


if __name__ == "__main__":
    main()
