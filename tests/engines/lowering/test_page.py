"""The page that follows a cell from its step to machine code shows the current output of the engine."""

from docs.from_step import PAGE, update


def test_the_page_equals_the_output_of_the_engine():
    page = PAGE.read_text("utf-8")
    assert update(page) == page, "run `python docs/from_step.py`"
