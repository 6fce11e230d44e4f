"""Our loop over Lark's tables does what Lark's own does."""

import random
from collections.abc import Iterator, Sequence

import pytest
from lark import Lark
from lark.exceptions import UnexpectedToken

from einturnip.core import package_data
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.syntax import tables
from einturnip.lang.syntax.chunks import BlockToken, StatementChunk, statements
from einturnip.lang.syntax.parser import FILE, Automaton, Unexpected, load_tables
from einturnip.lang.syntax.tree_builder import TreeBuilder
from tests.lang.test_format import MESSY, TIDY
from tests.lang.test_show import PROGRAM

LARK = Lark(package_data.text("grammar", "ein.lark"), parser="lalr", lexer="basic", transformer=TreeBuilder())
AUTOMATON = Automaton(load_tables(), TreeBuilder())


def every(chunks: Sequence[StatementChunk]) -> Iterator[list[LexToken]]:
    for chunk in chunks:
        if isinstance(block := chunk.tokens[-1], BlockToken):
            block.returns = ()
            yield from every(block.chunks)
        yield chunk.tokens


STATEMENTS = [tokens for text in (MESSY, TIDY, PROGRAM) for tokens in every(statements(tokenize(text, "")))]


def larks(tokens: Sequence[LexToken]) -> object:
    """Parse tokens with Lark's own driver: their tree, or the error's place and the allowed tokens."""
    run = LARK.parse_interactive()
    for position, token in enumerate(tokens):
        expected = run.accepts()
        try:
            run.feed_token(token)  # type: ignore[arg-type]
        except UnexpectedToken:
            return position, expected
    expected = run.accepts()
    try:
        return run.feed_eof()
    except UnexpectedToken:
        return len(tokens), expected


def ours(tokens: Sequence[LexToken]) -> object:
    try:
        return AUTOMATON.parse(tokens)
    except Unexpected as stopped:
        return stopped.position, stopped.expected


def test_the_tables_that_are_shipped_are_those_of_the_grammar() -> None:
    grammar, shipped = package_data.text("grammar", "ein.lark"), package_data.text("grammar", FILE)
    assert shipped == tables.text(tables.generate(grammar)), "run: python -m einturnip.lang.syntax.tables"
    other = tables.generate(grammar.replace("_IMPORT import", "_IMPORT _FROM import") + "%declare _FROM\n")
    assert other != load_tables()


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_same_trees_and_same_stops(number: int) -> None:
    tokens = STATEMENTS[number]
    assert ours(tokens) == larks(tokens)
    draw = random.Random(number)
    for _ in range(8):
        place = draw.randrange(len(tokens))
        other = draw.choice(draw.choice(STATEMENTS))
        changed = [*tokens[:place], *draw.choice(([], [other], [tokens[place], other])), *tokens[place + 1 :]]
        assert outcome(ours, changed) == outcome(larks, changed)


def outcome(parse: object, tokens: Sequence[LexToken]) -> object:
    """A tree, a stop, or the words of a builder that refuses."""
    try:
        return parse(tokens)  # type: ignore[operator]
    except Exception as refused:
        return str(refused)
