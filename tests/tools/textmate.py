"""A small TextMate tokenizer: enough of the rules to see what colour each character of a text gets."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    text: str
    scopes: tuple[str, ...]


def tokenize(grammar, text):
    """The pieces of a text with their scopes, innermost last."""
    state = [(grammar, None, ())]
    pieces = []
    for line in text.split("\n"):
        at = 0
        while at <= len(line):
            rule, end, scopes = state[-1]
            found = _first(grammar, rule, end, line, at)
            if found is None:
                pieces.append(Piece(line[at:], scopes))
                break
            match, inner = found
            pieces.append(Piece(line[at : match.start()], scopes))
            here = (*scopes, *_names(inner))
            if inner is None:
                pieces += _captured(match, rule.get("endCaptures", {}), scopes)
                state.pop()
            elif "begin" in inner:
                pieces += _captured(match, inner.get("beginCaptures", {}), here)
                state.append((inner, re.compile(inner["end"]), here))
            else:
                pieces += _captured(match, inner.get("captures", {}), here)
            if match.end() == match.start() and inner is not None and "begin" not in inner:
                raise AssertionError(f"{inner} matches nothing and would never end")
            at = match.end()
            if at == len(line) and not (state[-1][1] and state[-1][1].match(line, at)):
                break
    return [piece for piece in pieces if piece.text.strip()]


def scopes_of(grammar, text, word):
    """The scopes of each piece of a text that is this word."""
    return [piece.scopes for piece in tokenize(grammar, text) if piece.text == word]


def _names(rule):
    return (rule["name"],) if rule and "name" in rule else ()


def _first(grammar, rule, end, line, at):
    """The match that begins first, and its rule (None for the end of the rule in force); the earlier rule of two."""
    candidates = [(end.search(line, at), None)] if end else []
    candidates += [(re.compile(r.get("match") or r["begin"]).search(line, at), r) for r in _flat(grammar, rule)]
    candidates = [(m, r) for m, r in candidates if m]
    return min(candidates, key=lambda pair: pair[0].start(), default=None)


def _flat(grammar, rule):
    for pattern in rule.get("patterns", ()):
        target = grammar["repository"][pattern["include"].removeprefix("#")] if "include" in pattern else pattern
        if "match" in target or "begin" in target:
            yield target
        else:
            yield from _flat(grammar, target)


def _captured(match, captures, scopes):
    """The pieces of a match, each with the scope of the group that it belongs to."""
    at, pieces = match.start(), []
    if "0" in captures:
        scopes = (*scopes, captures["0"]["name"])
    for number in range(1, (match.re.groups or 0) + 1):
        if str(number) in captures and match.group(number):
            pieces.append(Piece(match.string[at : match.start(number)], scopes))
            pieces.append(Piece(match.group(number), (*scopes, captures[str(number)]["name"])))
            at = match.end(number)
    return [*pieces, Piece(match.string[at : match.end()], scopes)]
