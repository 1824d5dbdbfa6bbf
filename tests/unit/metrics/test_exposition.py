from __future__ import annotations

from fleet.metrics.counters import Counters, Counts
from fleet.metrics.exposition import BOUNDS_S, SUM_US, Exposition


def observed(*seconds: float) -> Counts:
    counters = Counters()
    for each in seconds:
        counters.observe("took", "P", each)
    return counters.of(("took", "P"))


def test_a_time_is_counted_in_the_first_bucket_that_holds_it() -> None:
    last = len(BOUNDS_S)
    counts = observed(0.0, 0.001, 0.0011, 900.0, 901.0)
    assert counts == {"0": 2, "1": 1, str(last - 1): 1, str(last): 1, SUM_US: 1_801_002_100}


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
    page.histograms("took_seconds", "How long.", "pool", [("P", observed(0.002, 0.002, 0.3, 2000))])
    lines = page.text().splitlines()
    assert 'took_seconds_bucket{pool="P",le="0.001"} 0' in lines
    assert 'took_seconds_bucket{pool="P",le="0.0025"} 2' in lines
    assert 'took_seconds_bucket{pool="P",le="900"} 3' in lines
    assert lines[-3:] == [
        'took_seconds_bucket{pool="P",le="+Inf"} 4',
        'took_seconds_sum{pool="P"} 2000.304',
        'took_seconds_count{pool="P"} 4',
    ]


def test_of_many_labels_fewer_buckets_may_be_shown_and_count_what_is_between() -> None:
    page = Exposition()
    counted = [("50%", observed(0.002, 0.005, 0.3, 2000))]
    page.histograms("took_seconds", "How long.", "pool", counted, bounds_s=(0.01, 1.0))
    assert page.text() == (
        "# HELP took_seconds How long.\n# TYPE took_seconds histogram\n"
        'took_seconds_bucket{pool="50%",le="0.01"} 2\n'
        'took_seconds_bucket{pool="50%",le="1"} 3\n'
        'took_seconds_bucket{pool="50%",le="+Inf"} 4\n'
        'took_seconds_sum{pool="50%"} 2000.307\n'
        'took_seconds_count{pool="50%"} 4\n'
    )


def test_a_large_family_stands_together_whatever_stands_behind_its_label() -> None:
    page = Exposition()
    samples: dict[str, list[tuple[str, float]]] = {',outcome="A"': [("P", 1), ('Q"', 2)], ',outcome="B"': [("P", 3)]}
    page.of_each("a_total", "counter", "All of it.", "pool", samples)
    assert page.text().splitlines()[2:] == [
        'a_total{pool="P",outcome="A"} 1',
        'a_total{pool="Q\\"",outcome="A"} 2',
        'a_total{pool="P",outcome="B"} 3',
    ]
