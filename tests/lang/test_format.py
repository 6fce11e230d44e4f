"""The canonical form: it means the same, keeps comments and paragraphs, and is its own canonical form."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.diagnostics import Span
from einturnip.core.errors import SourceError
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.syntax.formatter import WIDTH, format_text
from einturnip.lang.syntax.parser import parse

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for folder in ("tests", "docs", "grammar") for path in (ROOT / folder).rglob("*.ein"))

MESSY = """
import   "layers.ein" , std.nn
fn softmax(X[...,j])=exp(X[...,j]-max[j]X[...,j])/sum[j]exp(X[...,j]-max[j]X[...,j])
fn layer(X[s,d],W[d , e],b[e],eps=1e-5){
  #first
  H[s,e]=sum[d]X[s,d]*W[d,e]+b[e]


  return gelu(H[s, e]), X[s,d]+eps   # both

}
fn two(x)
{
  return x }  y = 3
dim   n,m=4, d=(n+m)*2- -m//3^2^2



input X:f32[n,m]="a.npy"   # one
input  W : bf16[2*(n-1),max(m,3)] = "w.safetensors"::"layer.0" # two
for l in 0..L {                            # unrolled
  for m in l+1..l+2*n { x=x+1 }  }
@tile(i=256,j=4 parts)@keep
@place(cuda:0)
A[i,j],b[i]=f(X[i,j],eps=3)
Z[i|j,d] = X[i,d]|Y[j,d]
Z[(h e),s] = X[s,h , e]
Y[k[i]:g,d] = sum[i]X[i,d]
Y[:,j,i:n-1] = X[a:b,j,i-1?0,2*i+1]
V = sum[i:n,j:m:f64](-1)^(i+j) < -2 and not a<=b or c<-d
fn g(
 Q[b,s],  #queries
  # more
 K[b]
 )=Q[b,s]+ # x
  K[b]
output V="v.npy" ,Z
# the end
"""

TIDY = """import "layers.ein", std.nn
fn softmax(X[..., j]) = exp(X[..., j] - max[j] X[..., j]) / sum[j] exp(X[..., j] - max[j] X[..., j])
fn layer(X[s,d], W[d,e], b[e], eps = 1e-5) {
  # first
  H[s,e] = sum[d] X[s,d] * W[d,e] + b[e]


  return gelu(H[s,e]), X[s,d] + eps  # both
}
fn two(x) {
  return x
}
y = 3
dim n, m = 4, d = (n + m) * 2 - -m // 3^2^2


input X : f32[n, m] = "a.npy"                                        # one
input W : bf16[2*(n - 1), max(m, 3)] = "w.safetensors" :: "layer.0"  # two
for l in 0 .. L {                                                    # unrolled
  for m in l + 1 .. l + 2 * n {
    x = x + 1
  }
}
@tile(i = 256, j = 4 parts) @keep
@place(cuda:0)
A[i,j], b[i] = f(X[i,j], eps = 3)
Z[i | j, d] = X[i,d] | Y[j,d]
Z[(h e), s] = X[s,h,e]
Y[k[i]: g, d] = sum[i] X[i,d]
Y[:, j, i: n-1] = X[a:b, j, i-1 ? 0, 2*i+1]
V = sum[i: n, j: m : f64] (-1)^(i + j) < -2 and not a <= b or c < -d
fn g(
    Q[b,s],  # queries
    # more
    K[b]
) = Q[b,s] +  # x
    K[b]
output V = "v.npy", Z
# the end
"""


def unspanned(value: object) -> object:
    """A syntax tree without its places."""
    if isinstance(value, Span):
        return None
    if isinstance(value, tuple):
        return tuple(unspanned(item) for item in value)
    if dataclasses.is_dataclass(value):
        return (type(value), *(unspanned(getattr(value, field.name)) for field in dataclasses.fields(value)))
    return value


def comments(text: str) -> list[str]:
    found: list[LexToken] = []
    tokenize(text, "", found)
    return ["".join(comment.text.split()) for comment in found]


def check(text: str) -> str:
    formatted = format_text(text)
    assert unspanned(parse(formatted).declarations) == unspanned(parse(text).declarations)
    assert comments(formatted) == comments(text)
    assert format_text(formatted) == formatted
    assert all(line == line.rstrip() for line in formatted.split("\n"))
    return formatted


def test_canonical_form() -> None:
    assert check(MESSY) == TIDY


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_keep_their_meaning(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        parse(text)
    except SourceError as error:
        with pytest.raises(SourceError) as again:
            format_text(text)
        assert str(again.value) == str(error)
        return
    check(text)


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n", "x = 1", "\ufeffx = 1\r\n\r\ny = 2\r\n"])
def test_small_texts(text: str) -> None:
    check(text)


def test_line_ends_become_newlines() -> None:
    assert format_text("\ufeffx = 1\r\n\r\n\r\n\r\n\r\ny = (1 +\r\n 2)") == "x = 1\n\n\ny = (1 + 2)\n"


def test_long_lines_are_broken_where_they_bind_weakest() -> None:
    names = [f"{letter * 25}[i]" for letter in "abcdefg"]
    long = f"Y[i] = {names[0]} * {names[1]} + f({names[2]}, {names[3]}, {names[4]}) - {names[5]}"
    assert check(long) == (
        f"Y[i] = {names[0]} * {names[1]} +\n    f({names[2]}, {names[3]}, {names[4]}) -\n    {names[5]}\n"
    )
    head = f"fn f({', '.join(names)}) {{ return 1 }}"
    lines = check(head).split("\n")
    assert lines[1].startswith("    d") and lines[3] == "  return 1" and max(map(len, lines)) <= WIDTH


ATOMS = st.sampled_from(["a", "X[i,j]", "2", ".5e3", "1j", "(a)", "X[i+1, 2*j]", "f(a, b = 2)", "X[i-1 ? 0]", "pi"])
NEXT = [" + ", "-", "*", " // ", "^", " <", "==", " and ", "|", "  or  ", " - -", "^-", "+ # why\n", "*\n\n  "]
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([o for o in NEXT if o != "|"]), inner).map("".join),
        inner.map(lambda e: f"({e})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"(sum[i, j :n: f64]{e})"),
        inner.map(lambda e: f"where( a,\n{e},b)"),
        inner.map(lambda e: f"Z[ {e} ,: ,...,(h e)]"),
    ),
    max_leaves=12,
)
GAPS = st.sampled_from(["\n", "\n\n", "\n\n\n\n", "  # behind\n", "\n# own\n", "\n\n   #! own\n\n"])
STATEMENTS = st.recursive(
    st.one_of(
        EXPRESSIONS.map(lambda e: f"Y [i: n-1,k[i]:g ,:]={e}"),
        EXPRESSIONS.map(lambda e: f"@tile(i=4 parts)\n@keep  z,w[i] = {e}"),
        EXPRESSIONS.map(lambda e: f"z = {e} | a"),
    ),
    lambda inner: st.tuples(
        st.sampled_from(["for l in 0..n - 1", "while  a<1,at   most n-1 ", "while sum[i]x[i]>1,\n at most 9"]),
        st.lists(st.tuples(inner, GAPS).map("".join), max_size=3).map("".join),
    ).map(lambda p: f"{p[0]}{{{p[1]}}}"),
    max_leaves=4,
)
FUNCTIONS = st.tuples(STATEMENTS, GAPS, EXPRESSIONS).map(
    lambda p: f"fn f(X[...,i],eps=2){{ {p[0]}{p[1]}return {p[2]} }}"
)
TEXTS = st.lists(st.tuples(st.one_of(STATEMENTS, FUNCTIONS), GAPS).map("".join), max_size=4).map("".join)


@given(TEXTS)
def test_drawn_programs_keep_their_meaning(text: str) -> None:
    check(text)
