"""The compiler's process: LLVM IR in, object files out. A script that imports llvmlite alone.

It is a separate process because LLVM takes some 70 MiB that a run would have to give up, and holds the interpreter's
lock. Reads lines of JSON, ``{"key": ..., "ir": ...}``. For each module that compiles it writes a line with ``key`` and
``nbytes``, then the object file. Its arguments are the module search path of the parent process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def attributes(features: str) -> str:
    """Return the attributes of every function: the widest vectors available."""
    width = "512" if "+avx512f" in features else "256"
    return f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" nounwind'


def machine() -> Any:
    """Return the target machine of this processor, and its features."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    made = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="small"
    )
    return made, features


def compiled(made: Any, features: str, text: str) -> bytes:
    """Compile a module to an object file."""
    import llvmlite.binding as llvm

    head = f'target triple = "{made.triple}"\ntarget datalayout = "{made.target_data}"\n'
    module = llvm.parse_assembly(f"{head}{text}\nattributes #0 = {{ {attributes(features)} }}\n")
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False  # the code already uses vectors
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(made, options)
    builder.getModulePassManager().run(module, builder)
    found: bytes = made.emit_object(module)
    return found


def main() -> None:
    """Compile the modules on standard input."""
    sys.path[:] = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries goes to standard error, not between the replies
    made, features = machine()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            data = compiled(made, features, job["ir"])
        except RuntimeError as error:  # LLVM rejects this module; go on with the others
            print(error, file=sys.stderr)
            continue
        replies.write(json.dumps({"key": job["key"], "nbytes": len(data)}).encode() + b"\n" + data)
        replies.flush()


if __name__ == "__main__":
    main()
