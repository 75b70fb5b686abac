"""Whole models from PyTorch: exports them by plain `torch.export`, runs them in torchlet, and
compares the outputs with eager mode.

    python sweep_pt2.py --torchlet ../../target/release/torchlet [--suite torchvision]
        [--only REGEX] [--decomposed] [--backend cpu]

Weights are random; models of `transformers` have tiny configurations. Each model is exported in its
own process. The error is the largest difference, relative to the largest expected value.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Callable

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy
import torch
from torch import nn
from torch.utils._pytree import tree_flatten

LARGEST = 1e-4
"""Largest error of a model that counts as correct."""
SECONDS = 900
"""Time limit per model."""

torch.set_num_threads(1)

Model = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def image(*shape: int) -> torch.Tensor:
    return torch.randn(1, *shape)


def of_torchvision(name: str) -> Model:
    import torchvision

    options = {"weights": None}
    if name.startswith(("deeplabv3", "fcn", "lraspp")):
        options["weights_backbone"] = None
    model = torchvision.models.get_model(name, **options)
    if name == "s3d":
        return model, (image(3, 16, 224, 224),), {}
    if name.startswith(("r3d", "mc3", "r2plus1d")):
        return model, (image(3, 16, 112, 112),), {}
    if name.startswith(("mvit", "swin3d")):
        return model, (image(3, 16, 224, 224),), {}
    if name.startswith("raft"):
        return model, (image(3, 128, 128), image(3, 128, 128)), {}
    size = 299 if name == "inception_v3" else 224
    return model, (image(3, size, size),), {}


def torchvision_names() -> list[str]:
    import torchvision

    models = torchvision.models
    modules = [models, models.segmentation, models.video, models.optical_flow]
    names = [name for module in modules for name in models.list_models(module=module)]
    # The largest ones have the operators of smaller ones.
    large = ("vit_h", "vit_l", "regnet_y_128", "mvit_v2", "raft_large", "swin3d_b", "swin3d_s")
    return [name for name in names if not name.startswith(large)]


def of_timm(name: str) -> Model:
    import timm

    model = timm.create_model(name, pretrained=False)
    return model, (image(*model.default_cfg["input_size"]),), {}


TIMM = """
beit_base_patch16_224 cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32 crossvit_9_240
cspresnet50 davit_tiny deit_tiny_patch16_224 dla34 dpn48b eca_nfnet_l0 edgenext_xx_small
efficientformer_l1 efficientformerv2_s0 efficientvit_b0 eva02_tiny_patch14_224 fastvit_t8
focalnet_tiny_srf gcvit_xxtiny ghostnet_050 gmlp_s16_224 halonet26t hardcorenas_a hgnet_tiny
hrnet_w18_small inception_next_tiny levit_128s lcnet_035 maxvit_rmlp_pico_rw_256 mixer_s32_224
mobileone_s0 mobilevit_xxs mobilevitv2_050 nest_tiny nf_regnet_b0 nfnet_l0 pit_ti_224
poolformer_s12 pvt_v2_b0 regnetx_002 repvgg_a0 res2net50_14w_8s resmlp_12_224 resnest14d rexnet_100
sebotnet33ts_256 selecsls42b senet154 skresnet18 swinv2_cr_tiny_224 tf_efficientnet_lite0 tinynet_e
tiny_vit_5m_224 tnt_s_legacy_patch16_224 tresnet_m twins_pcpvt_small visformer_tiny vgg11
volo_d1_224 xception41 xcit_nano_12_p8_224
""".split()


class FirstTensor(nn.Module):
    """Returns the main output of a model of `transformers`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        outputs = self.model(*args, **kwargs, return_dict=True)
        for key in ("logits", "last_hidden_state"):
            if key in outputs:
                return outputs[key]
        return outputs[0]


def tokens() -> torch.Tensor:
    return torch.randint(5, 90, (1, 12))


SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
IMAGES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
STAGES = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}

ENCODERS = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "XLMRoberta": SMALL,
    "MPNet": SMALL,
    "Deberta": SMALL,
    "DebertaV2": {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "Electra": {**SMALL, "embedding_size": 32},
    "Albert": {**SMALL, "embedding_size": 16},
    "DistilBert": {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "ModernBert": {**SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    | {"cls_token_id": 1, "sep_token_id": 2},
    "FNet": {name: SMALL[name] for name in SMALL if name != "num_attention_heads"},
    "CLIPText": SMALL,
}
"""Models of token sequences, `<name>Model`."""
DECODERS = {
    "Llama": GROUPED,
    "Mistral": {**GROUPED, "sliding_window": 8},
    "Mixtral": {**GROUPED, "num_local_experts": 4},
    "Qwen2": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 8},
    "Gemma": {**GROUPED, "head_dim": 8},
    "Gemma2": {**GROUPED, "head_dim": 8},
    "Phi": SMALL,
    "Phi3": {**GROUPED, "pad_token_id": 0},
    "Olmo": SMALL,
    "StableLm": GROUPED,
    "Starcoder2": GROUPED,
    "SmolLM3": {**GROUPED, "pad_token_id": 0},
    "GPTNeoX": SMALL,
    "GPTJ": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    | {"rotary_dim": 4},
    "Bloom": {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Falcon": {name: SMALL[name] for name in list(SMALL)[:4]},
    "OPT": {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48}
    | {"num_attention_heads": 4, "max_position_embeddings": 64, "word_embed_proj_dim": 32},
    "Mamba": {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}
"""Language models, `<name>ForCausalLM`."""
VISION = {
    "ViT": (IMAGES, 32),
    "DeiT": (IMAGES, 32),
    "Beit": (IMAGES, 32),
    "DPT": ({**IMAGES, "is_hybrid": False}, 32),
    "CLIPVision": (IMAGES, 32),
    "SiglipVision": (IMAGES, 32),
    "ConvNext": (STAGES, 64),
    "ResNet": ({**STAGES, "embedding_size": 8}, 64),
    "PoolFormer": (STAGES, 64),
    "Swin": (
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2]}
        | {"num_heads": [2, 2], "window_size": 4},
        32,
    ),
    "Segformer": ({**STAGES, "num_attention_heads": [1, 2, 2, 2]}, 64),
}
"""Models of images, `<name>Model`, with their size."""


def of_transformers(name: str) -> Model:
    import transformers

    def made(kind: str, options: dict[str, Any]) -> nn.Module:
        config = getattr(transformers, f"{name}Config")(**options)
        config.use_cache = False
        return FirstTensor(getattr(transformers, f"{name}{kind}")(config))

    if name in VISION:
        options, size = VISION[name]
        return made("Model", options), (image(3, size, size),), {}
    if name in DECODERS:
        return made("ForCausalLM", DECODERS[name]), (tokens(),), {}
    mask = {"attention_mask": torch.ones(1, 12, dtype=torch.long)}
    return made("Model", ENCODERS[name]), (tokens(),), {} if name == "FNet" else mask


SUITES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Model]]] = {
    "torchvision": (torchvision_names, of_torchvision),
    "timm": (lambda: TIMM, of_timm),
    "transformers": (lambda: [*ENCODERS, *DECODERS, *VISION], of_transformers),
}


def randomize(module: nn.Module) -> None:
    """Gives parameters that start as zeros, or close to them, values that outputs depend on."""
    with torch.no_grad():
        for parameter in module.parameters():
            largest = parameter.abs().max() if parameter.numel() else 1.0
            if largest == 0:
                parameter.normal_(0, 0.02)
            elif largest <= 1e-4:
                parameter.fill_(0.1)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def export(suite: str, name: str, decomposed: bool, folder: Path) -> int:
    """Writes the program, its inputs and expected outputs. Returns the number of inputs."""
    torch.manual_seed(0)
    module, args, kwargs = SUITES[suite][1](name)
    module.eval()
    randomize(module)
    with torch.no_grad():
        outputs = tensors(module(*args, **kwargs))
    program = torch.export.export(module, args, kwargs)
    torch.export.save(program.run_decompositions() if decomposed else program, folder / "m.pt2")
    inputs = tensors((args, kwargs))
    for index, tensor in enumerate(inputs):
        numpy.save(folder / f"input_{index}.npy", tensor.numpy())
    for index, tensor in enumerate(outputs):
        numpy.save(folder / f"expected_{index}.npy", tensor.numpy())
    return len(inputs)


def relative_error(found: numpy.ndarray, expected: numpy.ndarray) -> float:
    """The largest difference, relative to the largest expected value."""
    if found.shape != expected.shape:
        raise ValueError(f"shape {found.shape}, expected {expected.shape}")
    found, expected = found.astype(numpy.float64), expected.astype(numpy.float64)
    finite = numpy.isfinite(expected)
    if (finite != numpy.isfinite(found)).any():
        raise ValueError("other values are infinite or not numbers")
    largest = numpy.abs(expected[finite]).max(initial=1e-30)
    return float(numpy.abs(found - expected)[finite].max(initial=0) / largest)


def compare(folder: Path) -> float:
    """The largest relative error of all outputs."""
    worst = 0.0
    for path in sorted(folder.glob("expected_*.npy")):
        found = numpy.load(folder / path.name.replace("expected", "output"))
        try:
            worst = max(worst, relative_error(found, numpy.load(path)))
        except ValueError as error:
            raise ValueError(f"{path.stem}: {error}") from error
    return worst


def measure(suite: str, name: str, options: argparse.Namespace, results: Any) -> None:
    """Puts an outcome (`ok`, `wrong`, `refused` or `export`) and a detail into the queue."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        try:
            inputs = export(suite, name, options.decomposed, folder)
        except Exception as error:
            results.put(("export", f"{type(error).__name__}: {str(error).strip()[:120]}"))
            return
        command = [options.torchlet, "run", folder / "m.pt2", "--out", folder]
        command += ["--backend", options.backend]
        for index in range(inputs):
            command += ["--input", folder / f"input_{index}.npy"]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            results.put(("refused", ran.stderr.strip().replace(str(folder), "")[-400:]))
            return
        try:
            error = compare(folder)
            results.put(("ok" if error <= LARGEST else "wrong", f"{error:.1e}"))
        except ValueError as error:
            results.put(("wrong", str(error)))


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that choose models."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--suite", choices=SUITES, action="append")
    made.add_argument("--only", default="", help="regular expression of names")
    return made


def sweep(options: argparse.Namespace, measure: Callable[..., None], untried: str) -> bool:
    """Measures each model in a process of its own. `untried` is the outcome of models that say
    nothing about torchlet: those that fail in PyTorch. Returns whether 95 % are `ok`."""
    succeeded = True
    for suite in options.suite or SUITES:
        counts: Counter[str] = Counter()
        for name in filter(re.compile(options.only).search, SUITES[suite][0]()):
            results: Any = multiprocessing.Queue()
            arguments = (suite, name, options, results)
            process = multiprocessing.Process(target=measure, args=arguments)
            process.start()
            try:
                outcome, detail = results.get(timeout=SECONDS)
            except Exception:
                outcome, detail = "refused", f"no result within {SECONDS} seconds"
            process.terminate()
            process.join()
            counts[outcome] += 1
            print(f"{suite:12} {name:32} {outcome:8} {detail}", flush=True)
        tried = sum(counts.values()) - counts[untried]
        print(f"{suite}: {counts['ok']} of {tried} have eager's values; {dict(counts)}")
        succeeded &= counts["ok"] >= 0.95 * tried
    return succeeded


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--torchlet", required=True, type=Path)
    arguments.add_argument("--decomposed", action="store_true", help="after run_decompositions()")
    arguments.add_argument("--backend", default="cpu")
    options = arguments.parse_args()
    options.torchlet = options.torchlet.resolve()
    sys.exit(not sweep(options, measure, "export"))


if __name__ == "__main__":
    main()
