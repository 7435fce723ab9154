"""The counts and the letters on record, side by side: they must agree whatever happened to a batch."""

# Letters by group and minute, as they are on record; and the three ways in which they are counted.
COUNTS = """
SELECT (SELECT count(*) FROM dlq_handler.letter WHERE group_id IS NOT NULL) AS letters,
       (SELECT count(*) FROM dlq_handler.letter WHERE group_id IS NOT NULL AND outcome = 'failed') AS failed,
       (SELECT coalesce(sum(letters), 0) FROM dlq_handler.letter_group) AS group_letters,
       (SELECT coalesce(sum(failed), 0) FROM dlq_handler.letter_group) AS group_failed,
       (SELECT coalesce(sum(letters), 0) FROM dlq_handler.letter_minute) AS minute_letters,
       (SELECT coalesce(sum(failed), 0) FROM dlq_handler.letter_minute) AS minute_failed,
       (SELECT count(*) FROM (
            SELECT group_id, date_trunc('minute', received_at) AS minute, count(*),
                   count(*) FILTER (WHERE outcome = 'failed')
              FROM dlq_handler.letter WHERE group_id IS NOT NULL GROUP BY 1, 2
            EXCEPT SELECT group_id, minute, letters, failed FROM dlq_handler.letter_minute) AS miscounted) AS miscounted
"""


def assert_counted(row: tuple[int, ...], *, letters: int | None = None) -> None:
    """`row` is the answer to `COUNTS`. `letters`: how many there are to be."""
    recorded, failed, group_letters, group_failed, minute_letters, minute_failed, miscounted = map(int, row)
    assert (group_letters, group_failed) == (recorded, failed), "groups and letters on record differ"
    assert (minute_letters, minute_failed) == (recorded, failed), "minutes and letters on record differ"
    assert miscounted == 0, "some minute of some group is miscounted"
    assert letters is None or recorded == letters
