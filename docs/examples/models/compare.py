"""SmolLM2 by einturnip beside transformers, in turns: the same text, tokens a second, and memory seen from outside.

python compare.py MODEL.gguf [--memory 320MiB] [--tokens 32] [--rounds 2] [--peer-python PYTHON] [--offload]

Needs torch, transformers, accelerate and gguf in the peer's Python. With --offload, transformers runs by Accelerate's
disk_offload, in a memory cgroup of --memory where this process may make one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

QUESTIONS = (
    "What is the capital of France?",
    "Write a short story about a turnip.",
    "Explain what a matrix is.",
    "List three uses of a paper clip.",
    "Why is the sky blue?",
)
CGROUPS = Path("/sys/fs/cgroup/memory")


def ours(model: str, questions: list[str], tokens: int, memory: str | None, arena: str | None) -> list[dict[str, Any]]:
    """Each question answered by einturnip, the likeliest tokens."""
    from generate import Model, room

    reader = Model(model, memory=room(memory), arena=arena)

    def ask(question: str, most: int) -> dict[str, Any]:
        reader.reset()
        prompt = reader.tokenizer.chat(question)
        began, marks, said = time.perf_counter(), [], []
        first = logits = reader.read(prompt)
        marks.append(time.perf_counter())
        for _ in range(most):
            said.append(int(logits.argmax()))
            if said[-1] == reader.tokenizer.end or len(said) == most:
                break
            logits = reader.read([said[-1]])
            marks.append(time.perf_counter())
        return _told(question, prompt, said, began, marks) | {"logits": first.tolist()}

    ask(questions[0], 3)  # plans are made
    return [ask(question, tokens) for question in questions]


def theirs(model: str, questions: list[str], tokens: int, offload: str | None) -> list[dict[str, Any]]:
    """Each question answered by transformers in f32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder, name = os.path.split(os.path.abspath(model))
    if offload is None:
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
        reader = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    else:
        reader, tokenizer = _offloaded(folder, name, Path(offload))

    def ask(question: str, most: int) -> dict[str, Any]:
        chat = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, add_special_tokens=False).input_ids
        began, marks, said = time.perf_counter(), [], []
        with torch.no_grad():
            found = reader(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
            first = found.logits[0, -1]
            marks.append(time.perf_counter())
            for _ in range(most):
                said.append(int(found.logits[0, -1].argmax()))
                if said[-1] == tokenizer.eos_token_id or len(said) == most:
                    break
                held = found.past_key_values
                found = reader(torch.tensor([said[-1:]]), past_key_values=held, use_cache=True, logits_to_keep=1)
                marks.append(time.perf_counter())
        return _told(question, prompt, said, began, marks) | {"logits": first.tolist()}

    ask(questions[0], 1 if offload else 3)
    return [ask(question, tokens) for question in questions]


def _offloaded(folder: str, name: str, kept: Path) -> tuple[Any, Any]:
    """The model with its weights on disk, read for each layer; a first run, without a limit, writes them there."""
    import torch
    from accelerate import disk_offload, init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if not (kept / "index.json").exists():
        whole = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
        whole.config.save_pretrained(kept)
        AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(kept)
        disk_offload(whole, str(kept), offload_buffers=False)
        sys.exit(0)
    from accelerate import dispatch_model

    tokenizer = AutoTokenizer.from_pretrained(kept)
    with init_empty_weights():
        reader = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(kept), dtype=torch.float32).eval()
    reader.tie_weights()
    places = {"": "disk"}
    return dispatch_model(reader, places, main_device="cpu", offload_dir=str(kept), force_hooks=True), tokenizer


def _told(question: str, prompt: list[int], said: list[int], began: float, marks: list[float]) -> dict[str, Any]:
    steps = sorted(b - a for a, b in zip(marks, marks[1:], strict=False))
    each = steps[len(steps) // 2] if steps else float("nan")
    return {"question": question, "prompt": prompt, "said": said, "prefill": marks[0] - began, "token": each}


def watched(command: list[str], limit: int | None = None) -> dict[str, Any]:
    """Run a contender; what it found, and the highest resident memory that /proc shows of it."""
    group = CGROUPS / f"compare-{os.getpid()}"
    if limit is not None:
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(limit))
    join = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if limit is not None else None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=join)
    peak = [0]

    def watch() -> None:
        while process.poll() is None:
            try:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            except OSError:
                return
            peak[0] = max([peak[0], *(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))])
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = process.communicate()
    watcher.join()
    if limit is not None:
        group.rmdir()
    if process.returncode:
        return {"failed": f"exit {process.returncode}: {err.strip()[-400:]}", "peak": peak[0] / 1024}
    return {"answers": json.loads(out.strip().splitlines()[-1]) if out.strip() else [], "peak": peak[0] / 1024}


def main() -> None:
    """Run the contenders in turns, each in a process of its own, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--memory")
    parser.add_argument("--arena")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--offload", help="folder for weights that Accelerate reads from disk")
    parser.add_argument("--only", choices=["ours", "theirs"])
    parser.add_argument("--worker", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    questions = list(QUESTIONS[: given.questions])
    if given.worker == "ours":
        print(json.dumps(ours(given.model, questions, given.tokens, given.memory, given.arena)))
    elif given.worker == "theirs":
        print(json.dumps(theirs(given.model, questions, given.tokens, given.offload)))
    else:
        _contest(given)


def _contest(given: argparse.Namespace) -> None:
    from einturnip.core.settings import parse_size

    plain = [__file__, given.model, "--tokens", str(given.tokens), "--questions", str(given.questions)]
    peers = [given.peer_python, *plain, "--worker", "theirs", *(["--offload", given.offload] if given.offload else [])]
    mine = [sys.executable, *plain, "--worker", "ours"]
    mine += ["--memory", given.memory] if given.memory else ["--arena", given.arena] if given.arena else []
    if given.offload and not (Path(given.offload) / "index.json").exists():
        watched(peers)
    limit = parse_size(given.memory) if given.offload and given.memory else None
    answers: dict[str, list[dict[str, Any]]] = {}
    for _ in range(given.rounds):
        for name, command, bound in (("einturnip", mine, None), ("transformers", peers, limit)):
            if given.only and (name == "einturnip") != (given.only == "ours"):
                continue
            found = watched(command, bound)
            if "failed" in found:
                print(f"{name:14} peak {found['peak']:.0f} MiB, {found['failed']}")
                continue
            told = found["answers"]
            answers[name] = told
            each, prefill = (sorted(t[key] for t in told)[len(told) // 2] for key in ("token", "prefill"))
            print(
                f"{name:14} {1 / each:7.2f} tokens/s, prefill {prefill:.3f} s, peak {found['peak']:.0f} MiB", flush=True
            )
    if len(answers) == 2:
        for a, b in zip(*answers.values(), strict=True):
            apart = max(abs(x - y) for x, y in zip(a["logits"], b["logits"], strict=True))
            same = a["prompt"] == b["prompt"] and a["said"] == b["said"]
            words = "the same" if same else "DIFFER"
            print(f"{len(a['said'])} tokens {words}, logits within {apart:.1e}: {a['question']}")


if __name__ == "__main__":
    main()
