from __future__ import annotations

from fleet.metrics import BOUNDS_S, Exposition, Histogram


def observed(*seconds: float) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.observe(each)
    return histogram


def test_a_time_is_counted_in_the_first_bucket_that_holds_it() -> None:
    histogram = observed(0.0, 0.001, 0.0011, 900.0, 901.0)
    assert histogram.counts == [2, 1, *[0] * (len(BOUNDS_S) - 3), 1, 1]
    assert histogram.count == 5


def test_a_family_is_written_as_prometheus_reads_it() -> None:
    page = Exposition()
    page.family("a_total", "counter", "All of it.", [({"pool": 'P"1\\\n', "outcome": "SUCCESS"}, 3), ({}, 0.5)])
    page.family("epoch", "gauge", "Of the leader.", [({}, 1_763_000_000_000_001)])
    assert page.text() == (
        "# HELP a_total All of it.\n# TYPE a_total counter\n"
        'a_total{pool="P\\"1\\\\\\n",outcome="SUCCESS"} 3\na_total 0.5\n'
        "# HELP epoch Of the leader.\n# TYPE epoch gauge\nepoch 1763000000000001\n"
    )


def test_the_buckets_of_a_histogram_are_cumulative_and_end_with_all() -> None:
    page = Exposition()
    page.family("took_seconds", "histogram", "How long.", [({"pool": "P"}, observed(0.002, 0.002, 0.3, 2000))])
    lines = page.text().splitlines()
    assert 'took_seconds_bucket{pool="P",le="0.001"} 0' in lines
    assert 'took_seconds_bucket{pool="P",le="0.0025"} 2' in lines
    assert 'took_seconds_bucket{pool="P",le="900"} 3' in lines
    assert lines[-3:] == [
        'took_seconds_bucket{pool="P",le="+Inf"} 4',
        'took_seconds_sum{pool="P"} 2000.304',
        'took_seconds_count{pool="P"} 4',
    ]
