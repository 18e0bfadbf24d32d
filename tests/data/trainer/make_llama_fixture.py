#!/usr/bin/env python3
"""Makes this folder's fixtures: what Hugging Face's LlamaForCausalLM computes on small random models, in f32.

    python3 -m venv V && V/bin/pip install torch transformers safetensors numpy
    V/bin/python tests/data/trainer/make_llama_fixture.py [FOLDER: this one]

For each model NAME (grouped: grouped queries, untied; scaled: tied table, Llama 3.1's rotary scaling, a head size that
is not hidden / heads):
  NAME/config.json           the model's shape, with the keys that Hugging Face's Llama checkpoints have
  NAME/weights.safetensors   its weights
  NAME/batches.safetensors   "tokens" int32 [10, 2, 17]: a batch a step, inputs tokens[:, :-1], targets tokens[:, 1:]
  NAME/expected.safetensors  on the first batch: "logits" [2, 16, vocabulary], "loss" (mean over targets), and
                             "gradient.PARAMETER" for every parameter
  NAME/free.safetensors, NAME/clipped.safetensors
                             every parameter after ten steps of AdamW, without clipping and with the global norm clipped
                             at CLIP; "losses" [10] before each step, "norms" [10] before clipping
AdamW: learning rate 0.01, betas 0.9 and 0.95, epsilon 1e-8, weight decay 0.1 on matrices and none on norms.
The same versions give the same files. Made with torch 2.15, transformers 5.23.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

CLIP = 0.5
COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 48,
          "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128,
          "rms_norm_eps": 1e-5, "torch_dtype": "float32"}
MODELS = {
    "grouped": {**COMMON, "intermediate_size": 40, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0,
                "tie_word_embeddings": False},
    "scaled": {**COMMON, "intermediate_size": 36, "num_key_value_heads": 4, "head_dim": 6, "rope_theta": 500000.0,
               "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 16}, "tie_word_embeddings": True},
}


def make_model(shape):
    scaling = shape.get("rope_scaling") or {"rope_type": "default"}
    known = {key: value for key, value in shape.items()
             if key not in ("rope_theta", "rope_scaling", "torch_dtype", "model_type", "architectures")}
    config = LlamaConfig(**known, rope_parameters={**scaling, "rope_theta": shape["rope_theta"]},
                         attn_implementation="eager")
    model = LlamaForCausalLM(config).float()
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if parameter.dim() == 1:
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
            else:
                parameter.normal_(0, 0.6 if "embed" in name else 0.2)
    return model


def loss_and_logits(model, tokens):
    tokens = tokens.long()
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


def train(model, batches, clip):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    norms = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}],
                                  lr=0.01, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    losses, norms_before = [], []
    for tokens in batches:
        optimizer.zero_grad()
        loss, _ = loss_and_logits(model, tokens)
        loss.backward()
        norms_before.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip else float("inf")))
        losses.append(loss.detach())
        optimizer.step()
    return {**parameters(model), "losses": torch.stack(losses), "norms": torch.stack(norms_before)}


def parameters(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    torch.set_num_threads(1)
    for seed, (name, shape) in enumerate(MODELS.items()):
        torch.manual_seed(20 + seed)
        to = folder / name
        to.mkdir(parents=True, exist_ok=True)
        (to / "config.json").write_text(json.dumps(shape, indent=2) + "\n")
        model = make_model(shape)
        start = parameters(model)
        save_file(start, to / "weights.safetensors", metadata={"format": "pt"})
        batches = torch.randint(0, shape["vocab_size"], (10, 2, 17), dtype=torch.int32)
        save_file({"tokens": batches}, to / "batches.safetensors")
        loss, logits = loss_and_logits(model, batches[0])
        loss.backward()
        gradients = {f"gradient.{key}": p.grad.clone() for key, p in model.named_parameters()}
        save_file({"logits": logits.detach(), "loss": loss.detach().reshape(1), **gradients},
                  to / "expected.safetensors")
        for file, clip in (("free", None), ("clipped", CLIP)):
            model.load_state_dict(start, strict=False)
            result = train(model, batches, clip)
            print(name, file, "losses", [round(x, 4) for x in result["losses"].tolist()],
                  "norms", [round(x, 3) for x in result["norms"].tolist()])
            save_file(result, to / f"{file}.safetensors")


if __name__ == "__main__":
    main()
