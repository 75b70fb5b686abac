"""Trains the fixtures' language model and tokenizer, and writes the inputs of the exporter.

    python train.py FOLDER OUT

FOLDER contains the text (see `text.py`). OUT receives `tokenizer.json`, `tokenizer_config.json`,
`params.json` and `model.pth`, which ExecuTorch's Llama exporter reads. One thread and a fixed seed
make the weights reproducible on the same machine. The fixtures' weights are those of the first 1800
steps, and 450 more with `--resume --steps 450`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import text
import torch
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional as F

PARAMS = {
    "dim": 128,
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 1024,
    "hidden_dim": 320,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "multiple_of": 32,
}
# Llama 3's pre-tokenization.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LENGTH, BATCH, STEPS = 256, 8, 3600


def tokenizer_of(documents: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=PARAMS["vocab_size"],
        special_tokens=list(text.SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, out: Path) -> None:
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "bos_token": text.BEGIN,
        "eos_token": text.TURN_END,
        "chat_template": TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def batches(ids: torch.Tensor, generator: torch.Generator):
    """Windows that cover the text once per epoch, at other offsets in each."""
    while True:
        shift = int(torch.randint(LENGTH, (1,), generator=generator))
        count = (len(ids) - 1 - shift) // LENGTH
        order = torch.randperm(count, generator=generator)
        for first in range(0, count - BATCH + 1, BATCH):
            starts = shift + order[first : first + BATCH] * LENGTH
            rows = torch.stack([ids[start : start + LENGTH + 1] for start in starts.tolist()])
            yield rows[:, :-1], rows[:, 1:]


def rate_at(step: int, options: argparse.Namespace) -> float:
    if options.resume:
        return 2e-3 * min((step + 1) / 20, 1 - 0.97 * step / options.steps)
    return 4e-3 * min(
        (step + 1) / 100, 0.05 + 0.95 * (1 + math.cos(math.pi * step / options.steps)) / 2
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--resume", action="store_true", help="continue training OUT/model.pth, at a decreasing rate"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    choice, generator = random.Random(0), torch.Generator().manual_seed(1 if options.resume else 0)

    chapters = text.verses(options.folder)
    documents = text.documents(chapters) + text.conversations(chapters, choice)
    choice.shuffle(documents)
    tokenizer = tokenizer_of(documents)
    write_tokenizer(tokenizer, options.out)
    ids = torch.tensor([id for encoded in tokenizer.encode_batch(documents) for id in encoded.ids])
    print(f"{sum(map(len, documents))} characters, {len(ids)} tokens", flush=True)

    model = construct_transformer(
        ModelArgs(**PARAMS, max_seq_len=LENGTH, max_context_len=LENGTH, generate_full_logits=True)
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            scale = (
                0.02 / math.sqrt(2 * PARAMS["n_layers"])
                if name.endswith(("wo.weight", "w2.weight"))
                else 0.02
            )
            torch.nn.init.normal_(parameter, std=scale)
    if options.resume:
        model.load_state_dict(torch.load(options.out / "model.pth"), strict=False)
    model.output.weight = model.tok_embeddings.weight
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.97),
    )
    source, started, mean = batches(ids, generator), time.time(), 0.0
    for step in range(options.steps):
        rate = rate_at(step, options)
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, targets = next(source)
        logits = model(tokens)
        logits = logits[0] if isinstance(logits, tuple) else logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        if step % 50 == 0:
            print(f"step {step}, loss {mean:.3f}, {time.time() - started:.0f} s", flush=True)
            torch.save(model.state_dict(), options.out / "model.pth")
    torch.save(
        {name: value.clone() for name, value in model.state_dict().items()},
        options.out / "model.pth",
    )
    (options.out / "params.json").write_text(json.dumps(PARAMS) + "\n")


if __name__ == "__main__":
    main()
