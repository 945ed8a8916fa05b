"""Numbers and dates in words are distinct, their targets are digits, and the seed determines them."""

from datetime import date

from glassgate.tasks.data.toy.generated import dates_and_numbers, ordinal, spoken, spoken_year


def test_pairs_are_distinct_and_repeatable() -> None:
    pairs = dates_and_numbers(300, seed=3)
    assert len({pair.source for pair in pairs}) == 300
    assert pairs == dates_and_numbers(300, seed=3) != dates_and_numbers(300, seed=4)
    for pair in pairs:
        assert pair.target is not None
        assert pair.target.isdecimal() or date.fromisoformat(pair.target)


def test_spoken_forms_are_distinct() -> None:
    assert len({spoken(number) for number in range(3000)}) == 3000
    assert len({ordinal(number) for number in range(1, 100)}) == 99
    assert spoken(999_999) == "nine hundred and ninety-nine thousand nine hundred and ninety-nine"
    assert (ordinal(12), ordinal(40), spoken_year(1900)) == ("twelfth", "fortieth", "nineteen hundred")
