"""The colours of a program: the TextMate grammar knows the words that the language knows, in the places they stand."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from einturnip.core import package_data
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.dtypes import DTYPES
from einturnip.ir.functions import ELEMENTWISE
from einturnip.lang.keywords import CONSTANTS, FUNCTIONS, KEYWORDS

_spec = importlib.util.spec_from_file_location("textmate", Path(__file__).with_name("textmate.py"))
textmate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(textmate)

FOLDER = package_data.folder("grammar") / "vscode"
GRAMMAR = json.loads((FOLDER / "syntaxes/ein.tmLanguage.json").read_text())


def scopes(text, word):
    return textmate.scopes_of(GRAMMAR, text, word)


def innermost(text, word):
    return [found[-1].removesuffix(".ein") if found else None for found in scopes(text, word)]


STATEMENT = {
    "dim": "dim n = 4",
    "input": "input X : f32[n]",
    "output": "output X",
    "import": 'import "layers.ein"',
    "fn": "fn f(x) = x",
    "for": "for l in 0 .. L {",
    "while": "while r > 1, at most 9 {",
    "in": "for l in 0 .. L {",
    "state": "state W : f32[n] = 0",
    "return": "  return X[i]",
    "and": "Y[i] = a[i] and b[i]",
    "or": "Y[i] = a[i] or b[i]",
    "not": "Y[i] = not b[i]",
}


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_keywords(word):
    (found,) = innermost(STATEMENT[word], word)
    assert found.startswith("keyword."), found


@pytest.mark.parametrize("word", sorted(DTYPES))
def test_dtypes(word):
    for text in (f"input X : {word}[n, 2*d]", f"input x : {word}", f"y = {word}(x)", f"y = sum[i : {word}] X[i]"):
        assert innermost(text, word) == ["storage.type"], text
    assert innermost(f"y{word} = 1", word) == []


@pytest.mark.parametrize("word", sorted(CONSTANTS))
def test_constants(word):
    assert innermost(f"y = {word}", word) == ["constant.language"]
    assert innermost(f"Y[i] = X[i-1 ? {word}]", word) == ["constant.language"]


@pytest.mark.parametrize("word", sorted(AGGREGATIONS))
def test_aggregations(word):
    assert innermost(f"y = {word}[i: n, j] X[i, j]", word) == ["support.function.aggregation"]
    assert innermost(f"y = {word} [i] X[i]", "i") == ["variable.parameter.label"] * 2


@pytest.mark.parametrize("word", sorted(FUNCTIONS))
def test_functions(word):
    (found,) = innermost(f"y[i] = {word}(x[i])", word)
    assert found.startswith("support.function"), found


def test_a_word_is_no_piece_of_a_longer_one():
    for word in sorted(set(ELEMENTWISE) | set(AGGREGATIONS) | KEYWORDS | set(CONSTANTS)):
        for longer in (f"{word}_", f"x{word}", f"{word}2x"):
            found = innermost(f"y = {longer}", longer)
            assert found in (["variable.other"], ["variable.other.declared"]), (longer, found)


@pytest.mark.parametrize("number", ["0", "42", "1_000", "1.5", ".5", "1.", "1e-5", "2.5E+3", "2j", "1.5e3j"])
def test_numbers(number):
    assert innermost(f"y = {number} * x", number) == ["constant.numeric"]


def test_comments_and_strings():
    text = 'input X : f32[n] = "dir/x #1.npy"  # sum of "it"'
    pieces = textmate.tokenize(GRAMMAR, text)
    quoted = "".join(p.text for p in pieces if "string.quoted.double.ein" in p.scopes)
    comment = "".join(p.text for p in pieces if "comment.line.number-sign.ein" in p.scopes)
    assert quoted == '"dir/x #1.npy"' and comment == '# sum of "it"'
    single = textmate.tokenize(GRAMMAR, "output Y = 'y.npy'\nY")
    assert [p.text for p in single if "string.quoted.single.ein" in p.scopes] == ["'", "y.npy", "'"]
    assert single[-1].scopes == ("variable.other.ein",)


def test_labels_are_told_from_tensors_sizes_and_functions():
    text = "H[s, d] = E[ids[s], 2*d+k] * w(s)"
    assert innermost(text, "s") == ["variable.parameter.label", "variable.parameter.label", "variable.other"]
    assert innermost(text, "E") == innermost(text, "ids") == ["variable.other.tensor"]
    assert innermost(text, "w") == ["entity.name.function.call"]
    assert innermost("input X : f32[n, 2*d]", "d") == ["variable.other.constant.dim"]


def test_loops_hints_functions_and_imports():
    assert innermost("for l in 0 .. L {", "l") == ["variable.parameter.loop"]
    assert innermost("for l in 0 .. 12 {", "..") == ["keyword.operator.range"]
    assert innermost("for l in 0..12 {", "..") == ["keyword.operator.range"]
    assert innermost("for l in 0..12 {", "0") == ["constant.numeric"]
    assert innermost("while r > 1e-6, at most 9 {", "while") == ["keyword.control"]
    assert innermost("while f(r, k) > 1e-6, at most 9 {", "at most") == ["keyword.control.loop"]
    assert innermost("y = at * most", "at") == ["variable.other"]
    hint = "@tile(i = 256, j = 4 parts) Y[i] = X[i]"
    assert innermost(hint, "tile") == ["entity.name.function.decorator"]
    assert innermost(hint, "parts") == ["keyword.other.parts"]
    assert innermost(hint, "i") == ["variable.parameter.label"] * 3
    assert innermost("@place(cuda:0)", "cuda") == ["support.constant.device"]
    assert innermost("@keep\nY[i] = X[i]", "Y") == ["variable.other.tensor"]
    assert innermost("fn softmax(X[..., j]) = X[..., j]", "softmax") == ["entity.name.function"]
    assert innermost("fn softmax(X[..., j]) = X[..., j]", "...") == ["keyword.operator.rest"] * 2
    assert innermost("import std.nn", "std.nn") == ["entity.name.namespace"]


def test_every_rule_that_is_included_exists_and_compiles():
    def walk(rule):
        for key in ("match", "begin", "end"):
            if key in rule:
                re.compile(rule[key])
        for pattern in rule.get("patterns", ()):
            if "include" in pattern:
                assert pattern["include"].removeprefix("#") in GRAMMAR["repository"]
            walk(pattern)

    for rule in (GRAMMAR, *GRAMMAR["repository"].values()):
        walk(rule)


def test_the_extension_names_files_that_are_there():
    package = json.loads((FOLDER / "package.json").read_text())
    (language,) = package["contributes"]["languages"]
    (grammar,) = package["contributes"]["grammars"]
    assert grammar["scopeName"] == GRAMMAR["scopeName"] and grammar["language"] == language["id"]
    assert language["extensions"] == [".ein"]
    for file in (package["main"], language["configuration"], grammar["path"], "README.md"):
        assert (FOLDER / file).is_file(), file
    assert json.loads((FOLDER / language["configuration"]).read_text())["comments"]["lineComment"] == "#"
    assert package["contributes"]["configuration"]["properties"]["einturnip.command"]["default"] == ["einturnip", "lsp"]


def test_the_folder_reaches_the_wheel():
    pytest.importorskip("hatchling")
    from hatchling.builders.wheel import WheelBuilder

    builder = WheelBuilder(str(Path(__file__).resolve().parents[2]))
    shipped = {file.distribution_path for file in builder.recurse_included_files()}
    for file in ("package.json", "extension.js", "language-configuration.json", "syntaxes/ein.tmLanguage.json"):
        assert f"einturnip/grammar/vscode/{file}" in shipped
