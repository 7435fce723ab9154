"""How the pages say things, where that is easily got wrong."""

from dlq_handler.dashboard.words import plain, unbroken


def test_a_number_and_its_unit_stay_together_and_nothing_else_does() -> None:
    assert (
        unbroken("33 min ago; 5 deaths, 7 s") == "33\N{NO-BREAK SPACE}min ago; 5 deaths, 7\N{NO-BREAK SPACE}s"
    )


def test_backticks_are_left_out_in_pairs() -> None:
    assert plain("run `dlq-handler status` now") == "run dlq-handler status now"
    assert plain("a`b") == "a`b"
