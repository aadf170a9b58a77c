"""What counts of a source: what computes, and nothing else."""

import ast

import pytest

from trainonce.study.identity import source

SOURCE = '''
"""About."""
import torch
from trainonce.study import task

def helper(x):
    return x + 1

@task(terms=["a"], margin=1.0)
@with_bias(0)
def train(trial, *, steps=3):
    """Text."""
    return helper(steps)

if __name__ == "__main__":
    start(train)
'''


def text(old="", new=""):
    assert old in SOURCE
    return source.normalise(ast.parse(SOURCE.replace(old, new) if old else SOURCE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("margin=1.0", "margin=2.0"),
        ('"""Text."""', '"""Other."""'),
        ("x + 1", "(x + 1)  # why"),
        ("import torch", "\n\nimport torch"),
        ("start(train)", "start(train, seeds=5)"),
        ('__name__ == "__main__"', "'__main__' == __name__"),
    ],
)
def test_comments_texts_the_task_decorator_and_the_block_for_scripts_do_not_count(old, new):
    assert text(old, new) == text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + 1", "x + 2"),
        ("helper(steps)", "helper(steps + 1)"),
        ("steps=3", "steps=4"),
        ("with_bias(0)", "with_bias(100)"),
        ("@with_bias(0)\n", ""),
        ('if __name__ == "__main__"', 'if __name__ != "__main__"'),
        ('if __name__ == "__main__"', 'if __file__ == "__main__"'),
        ('if __name__ == "__main__":\n', 'if __name__ == "__main__":\n    pass\nelse:\n'),
    ],
)
def test_what_computes_does_count(old, new):
    assert text(old, new) != text()


@pytest.mark.parametrize(
    ("imports", "decorator", "ours"),
    [
        ("from trainonce.study import task", "task", True),
        ("from trainonce.study import task as compared", "compared", True),
        ("from trainonce.study.task import task", "task", True),
        ("from trainonce import study", "study.task", True),
        ("import trainonce.study", "trainonce.study.task", True),
        ("import trainonce.study as s", "s.task", True),
        ("import trainonce as t", "t.study.task", True),
        ("from prefect import task", "task", False),
        ("from .trainonce.study import task", "task", False),
        ("from trainonce import study", "study.other", False),
        ("task = 1", "task", False),
    ],
)
def test_the_decorator_of_tasks_is_known_by_where_it_comes_from(imports, decorator, ours):
    texts = [source.normalise(ast.parse(f"{imports}\n@{decorator}(k={k})\ndef f(trial): ...")) for k in (1, 2)]
    assert (texts[0] == texts[1]) is ours


def test_only_a_call_of_the_decorator_is_dropped():
    given = [f"from trainonce.study import task\n@{d}\ndef f(): ..." for d in ("task", "task(k=1)(g)", "task[0](k=1)")]
    plain = source.normalise(ast.parse("from trainonce.study import task\ndef f(): ..."))
    assert all(source.normalise(ast.parse(each)) != plain for each in given)


def test_what_a_value_is_counts_also_where_it_is_empty():
    values = ("None", "''", "[]", "0", "False", "0.0", "b''")
    assert len({text("return helper(steps)", f"return {value}") for value in values}) == len(values)


def test_a_file_that_cannot_be_parsed_counts_by_its_text(tmp_path):
    file = tmp_path / "broken.py"
    digests = set()
    for content in (b"x = (", b"x = [", b"x = (  # more", b"\xff\xfe = 1"):
        file.write_bytes(content)
        digests.add(source.file_digest(file))
    assert len(digests) == 4


def test_the_hash_of_a_file_is_that_of_earlier_versions(tmp_path):
    """Keys are made of it: another hash would make everyone's stored results useless."""
    file = tmp_path / "model.py"
    file.write_text("width = 1  # enough")
    assert source.file_digest(file) == "3d875a55c28c0311"


def test_the_pieces_of_an_f_string_do_not_count():
    """Python 3.12 leaves texts that follow each other apart, and some that are empty."""
    tree = ast.parse("f'a{x}bc'")
    before = source.normalise(tree)
    tree.body[0].value.values[2:] = [ast.Constant("b"), ast.Constant(""), ast.Constant("c")]
    tree.body[0].value.values.insert(0, ast.Constant(""))
    assert source.normalise(tree) == before != source.normalise(ast.parse("f'a{x}cb'"))


def test_empty_texts_around_the_values_of_an_f_string_do_not_count():
    tree = ast.parse("f'{x}{y}'")
    before = source.normalise(tree)
    for place in (2, 1, 0):
        tree.body[0].value.values.insert(place, ast.Constant(""))
    assert source.normalise(tree) == before
