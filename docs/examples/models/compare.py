"""SmolLM2 by einturnip compared with transformers: the text, tokens per second and peak memory.

Both are resident processes that answer alternately, so that both run on the same machine in the same state.

    python compare.py MODEL.gguf [--memory 320MiB] [--tokens 32] [--rounds 2] [--peer-python PYTHON] [--offload]

Needs torch, transformers, accelerate and gguf in the peer's Python. With --offload FOLDER, transformers uses
Accelerate's disk_offload. With --limit SIZE, each contender runs in a memory cgroup (version 1, as root) of that size,
which also counts the page cache, and in which the kernel kills a process that needs more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
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


Ask = Callable[[str, int], dict[str, Any]]
"""A question with the maximum number of tokens of the answer."""


def ours(model: str, memory: str | None, arena: str | None) -> Ask:
    """Answers by einturnip, the most likely tokens."""
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

    return ask


def theirs(model: str, offload: str | None) -> Ask:
    """Answers by transformers in f32."""
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

    return ask


def _offloaded(folder: str, name: str, kept: Path) -> tuple[Any, Any]:
    """The model with its weights on disk; a first run, without a limit, writes them there."""
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


class Contender:
    """A process that answers one question per line; its peak resident memory is read from /proc."""

    def __init__(self, command: list[str], limit: int | None = None) -> None:
        self.group = Path(tempfile.mkdtemp(prefix="compare-", dir=CGROUPS)) if limit is not None else None
        if self.group is not None:
            (self.group / "memory.limit_in_bytes").write_text(str(limit))
        self.peak_mib, self.errors = 0.0, tempfile.TemporaryFile("w+")  # noqa: SIM115  (lives as long as the process)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True, preexec_fn=self._join
        )
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def _join(self) -> None:
        if self.group is not None:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def _watch(self) -> None:
        while self.process.poll() is None:
            try:
                lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            except OSError:
                return
            self.peak_mib = max([self.peak_mib, *(int(x.split()[1]) / 1024 for x in lines if x.startswith("VmHWM"))])
            time.sleep(0.02)

    def ask(self, question: str, most: int) -> dict[str, Any]:
        """Its answer; if it died, the reason."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(json.dumps([question, most]), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = self.process.wait()
        self.errors.seek(0)
        return {"failed": f"exit {code}: {self.errors.read().strip()[-400:]}"}

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.watcher.join()
        if self.group is not None:
            self.group.rmdir()


def _serve(ask: Ask) -> None:
    for line in sys.stdin:
        print(json.dumps(ask(*json.loads(line))), flush=True)


def main() -> None:
    """Run the contenders alternately, each in a process of its own, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--memory")
    parser.add_argument("--arena")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--offload", help="folder for weights that Accelerate reads from disk")
    parser.add_argument("--limit", help="memory of the cgroup that each contender runs in")
    parser.add_argument("--only", choices=["ours", "theirs"])
    parser.add_argument("--worker", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker == "ours":
        _serve(ours(given.model, given.memory, given.arena))
    elif given.worker == "theirs":
        _serve(theirs(given.model, given.offload))
    else:
        _contest(given)


def _contest(given: argparse.Namespace) -> None:
    from einturnip.core.units import parse_size

    peers = [given.peer_python, __file__, given.model, "--worker", "theirs"]
    peers += ["--offload", given.offload] if given.offload else []
    mine = [sys.executable, __file__, given.model, "--worker", "ours"]
    mine += ["--memory", given.memory] if given.memory else ["--arena", given.arena] if given.arena else []
    if given.offload and not (Path(given.offload) / "index.json").exists():
        subprocess.run(peers, check=True, stdin=subprocess.DEVNULL)
    limit = parse_size(given.limit) if given.limit else None
    contenders = {}
    if given.only != "theirs":
        contenders["einturnip"] = Contender(mine, limit)
    if given.only != "ours":
        contenders["transformers"] = Contender(peers, limit)
    for contender in contenders.values():
        contender.ask(QUESTIONS[0], 3)  # plans are made, files read
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for question in QUESTIONS[: given.questions] * given.rounds:
        for name, contender in contenders.items():
            found = contender.ask(question, given.tokens)
            answers[name].append(found)
            _print(name, found, contender.peak_mib)
        _compare([found[-1] for found in answers.values()])
    for name, contender in contenders.items():
        told = [found for found in answers[name] if "failed" not in found]
        if told:
            each, prefill = (statistics.median(found[key] for found in told) for key in ("token", "prefill"))
            print(
                f"{name:13} median {1 / each:7.2f} tokens/s, prefill {prefill:.3f} s, peak {contender.peak_mib:.0f} MiB"
            )
        contender.close()


def _print(name: str, found: dict[str, Any], peak_mib: float) -> None:
    if "failed" in found:
        print(f"{name:13} peak {peak_mib:.0f} MiB, {found['failed']}", flush=True)
    else:
        print(f"{name:13} {1 / found['token']:7.2f} tokens/s, prefill {found['prefill']:.3f} s", flush=True)


def _compare(answers: list[dict[str, Any]]) -> None:
    if len(answers) < 2 or any("failed" in found for found in answers):
        return
    a, b = answers
    apart = max(abs(x - y) for x, y in zip(a["logits"], b["logits"], strict=True))
    same = a["prompt"] == b["prompt"] and a["said"] == b["said"]
    words = "the same" if same else "DIFFER"
    print(f"    {len(a['said'])} tokens {words}, logits within {apart:.1e}: {a['question']}", flush=True)


if __name__ == "__main__":
    main()
