"""Fixtures that tests of the tools share."""

import pytest


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    from tests.tools.editor import Editor

    editor = Editor(tmp_path_factory.mktemp("editor"), {"dims": {"n": 1000, "other": 3}})
    yield editor
    editor.close()
