"""The parser's tables: generated from ``grammar/ein.lark`` and shipped as JSON.

Runs therefore do not need Lark. After a change of the grammar run ``python -m einturnip.lang.syntax.tables``; a test
checks that the file is up to date.
"""

from __future__ import annotations

import json
from typing import Any

from einturnip.core import package_data
from einturnip.lang.syntax.parser import FILE, Tables


def generate(grammar: str) -> Tables:
    """Generate the tables of a grammar deterministically: states in the order in which they are reached."""
    from lark import Lark

    parser = Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=True)
    conf = parser.parse_interactive().parser_state.parse_conf
    rules = sorted({a for row in conf.states.values() for _, a in row.values() if not isinstance(a, int)}, key=_order)
    numbers, reached = {conf.start_state: 0}, [conf.start_state]
    for state in reached:
        for _, (_, after) in sorted(conf.states[state].items()):
            if isinstance(after, int) and after not in numbers:
                numbers[after] = len(numbers)
                reached.append(after)
    places = {rule: place for place, rule in enumerate(rules)}
    states = [
        {
            symbol: numbers[after] if isinstance(after, int) else [places[after]]
            for symbol, (_, after) in sorted(conf.states[state].items())
        }
        for state in reached
    ]
    return {"start": 0, "end": numbers[conf.end_state], "rules": [_rule(rule) for rule in rules], "states": states}


def _order(rule: Any) -> tuple[str, list[str], str]:
    return rule.origin.name, [symbol.name for symbol in rule.expansion], rule.alias or ""


def _rule(rule: Any) -> dict[str, Any]:
    """A rule as data. Source: lark/parse_tree_builder.py, which wraps functions around each other instead.

    ``size``: number of parts that it reduces. ``build``: the builder's method; None for the rules that Lark generates
    for ``*`` and ``+``, whose parts belong to the enclosing rule. ``single``: a single part is passed on unchanged.
    ``takes``: for each used part, the number of absent ones (``[...]``) before it, its position, and whether its own
    parts are spliced in. ``absent``: the number of absent parts at the end.
    """
    expansion, options = rule.expansion, rule.options
    absent = [0]
    for is_absent in options.empty_indices or (False,) * len(expansion):
        if is_absent:
            absent[-1] += 1
        else:
            absent.append(0)
    takes, before = [], 0
    for place, symbol in enumerate(expansion):
        before += absent[place]
        if options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            takes.append([before, place, not symbol.is_term and symbol.name.startswith("_")])
            before = 0
    return {
        "rule": rule.origin.name,
        "size": len(expansion),
        "build": None if rule.origin.name.startswith("_") else rule.alias or rule.origin.name,
        "single": bool(options.expand1 and not rule.alias),
        "takes": takes,
        "absent": before + absent[len(expansion)],
    }


def text(tables: Tables) -> str:
    """Format tables as JSON, one line for each rule or state."""
    head = {"start": tables["start"], "end": tables["end"]}
    lines = [json.dumps(head)[:-1] + ',\n"rules": [\n', ",\n".join(map(json.dumps, tables["rules"]))]
    lines += ['\n],\n"states": [\n', ",\n".join(map(json.dumps, tables["states"])), "\n]}\n"]
    return "".join(lines)


if __name__ == "__main__":
    made = text(generate(package_data.text("grammar", "ein.lark")))
    (package_data.folder("grammar") / FILE).write_text(made, encoding="utf-8")
