"""Other engines on the same prompts, each in an environment of its own: `python foreign.py vllm|llama FOLDER`.

FOLDER holds the checkpoint (`model/`), `weights.npz` (the same in float32), and `asked.json` (prompts as token ids,
tokens to write, batch sizes to try). Prints one line of JSON: the tokens written, and CPU seconds at each batch size.
Imports nothing of dssr, whose libraries these environments do not have.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROUNDS = 2
"""The best of so many counts."""


def timed(work: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    """CPU seconds of this process and its children, the best of several rounds, and what was written."""
    took, written = float("inf"), list[list[int]]()
    for _ in range(ROUNDS):
        begin = cpu_seconds()
        written = work()
        took = min(took, cpu_seconds() - begin)
    return took, written


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def vllm(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """vLLM on the CPU, eager, in this process."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    from vllm import LLM, SamplingParams

    longest = max(map(len, asked["prompts"])) + asked["tokens"]
    engine = LLM(
        str(folder / "model"),
        dtype="float32",
        enforce_eager=True,
        max_model_len=-(-longest // 32) * 32,
        max_num_seqs=max(asked["rows"]),
        max_num_batched_tokens=8192,
        enable_prefix_caching=False,
        block_size=32,
    )
    settings = SamplingParams(max_tokens=asked["tokens"], temperature=0.0, ignore_eos=True)

    def write() -> list[list[int]]:
        done = engine.generate([{"prompt_token_ids": ids} for ids in asked["prompts"]], settings, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in done]

    took, written = timed(write)
    return {"written": written, "seconds": {max(asked["rows"]): took}}


def llama(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp through `xllamacpp`: a server in this process with as many slots as rows."""
    import xllamacpp  # type: ignore[import-not-found]

    file = folder / "model.gguf"
    write_gguf(folder, file)
    found: dict[int, float] = {}
    written: list[list[int]] = []
    for rows in asked["rows"]:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(file)
        settings.n_parallel = rows
        settings.n_ctx = rows * (-(-(max(map(len, asked["prompts"])) + asked["tokens"]) // 256) * 256)
        settings.n_batch = settings.n_ubatch = 512
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.cache_prompt = False
        settings.cache_ram_mib = 0
        settings.kv_unified = False
        settings.warmup = True
        settings.verbosity = -1
        server = xllamacpp.Server(settings)

        def one(ids: list[int], server: Any = server) -> list[int]:
            request = {"prompt": ids, "n_predict": asked["tokens"], "temperature": 0.0, "ignore_eos": True}
            request |= {"cache_prompt": False, "stream": False}
            text = server.handle_completions(request)["choices"][0]["text"]
            return [int(token) for token in text.split("t")[1:]]  # as the stand-in vocabulary spells them

        def write(threads: int = 2 * rows, one: Callable[[list[int]], list[int]] = one) -> list[list[int]]:
            with ThreadPoolExecutor(threads) as pool:
                return list(pool.map(one, asked["prompts"]))

        found[rows], written = timed(write)
        del server
    return {"written": written, "seconds": found}


def write_gguf(folder: Path, file: Path) -> None:
    """The checkpoint as llama.cpp reads it, in float32; its vocabulary is a stand-in, since prompts are token ids."""
    import gguf
    import numpy as np

    config = json.loads((folder / "model" / "config.json").read_text())
    out = gguf.GGUFWriter(str(file), "qwen3")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list([f"t{number}" for number in range(config["vocab_size"])])
    out.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    out.add_token_merges(["t 0"])
    out.add_eos_token_id(config["eos_token_id"])
    out.add_add_bos_token(False)
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for key, weight in np.load(folder / "weights.npz").items():
        place = key.removesuffix(".weight")
        if place in names:
            out.add_tensor(f"{names[place]}.weight", weight)
        elif place.startswith("model.layers."):
            number, _, part = place.removeprefix("model.layers.").partition(".")
            out.add_tensor(f"blk.{number}.{names[part]}.weight", weight)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    place = Path(sys.argv[2])
    result = {"vllm": vllm, "llama": llama}[sys.argv[1]](place, json.loads((place / "asked.json").read_text()))
    print(json.dumps(result))
