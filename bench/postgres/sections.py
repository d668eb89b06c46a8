"""The comparisons on PostgreSQL: their contenders, and the bounds for the results."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.bars import Bar, Ceiling, Section
from bench.load.generator import Load
from bench.options import Options
from bench.postgres import cluster, contest, grown, served
from bench.postgres.cluster import Cluster
from bench.postgres.entrants import ACKBOX, ACKBOX_50, PEERS, PGQUEUER, PROCRASTINATE, Entrant
from bench.rounds import Contender, Progress, interleave
from bench.sample import Sample, Summary

DATABASE = "bench"
EMPTY = "empty"
Measure = Callable[[Entrant, str, Options], Sample]


def enqueue(options: Options, progress: Progress) -> Section:
    entrants = _chosen([ACKBOX, *PEERS], options)
    summaries = _compare(entrants, contest.enqueue, options, progress)
    title = f"durable enqueue, {options.connections} callers, one job at a time"
    return Section(_titled(title, options), summaries, _over_best("ackbox", summaries, 6.0))


def work(options: Options, progress: Progress) -> Section:
    entrants = _chosen([ACKBOX, ACKBOX_50, *PEERS], options)
    summaries = _compare(entrants, contest.work, options, progress)
    title = f"claim, run and complete, {options.postgres_preloaded_rows:,} jobs that do nothing"
    return Section(_titled(title, options), summaries, _over_best("ackbox-50", summaries, 1.0))


def http(options: Options, progress: Progress) -> Section:
    entrants = _chosen([ACKBOX, PROCRASTINATE, PGQUEUER], options)
    summaries = _compare(entrants, served.ingest, options, progress)
    title = f"durable ingest over HTTP, {options.connections} connections"
    return Section(_titled(title, options), summaries, _over_best("ackbox", summaries, 4.0))


def growth(options: Options, progress: Progress) -> Section:
    rows = options.postgres_grown_rows
    with cluster.running(options.directory, options.postgres_major) as server:
        history = grown.database(server, rows, options, progress)
        server.drop_all(EMPTY)
        # This round is not counted: after a checkpoint the first write to a page logs the whole
        # page, and a server that has just started has made a checkpoint.
        _on_top(history, contest.enqueue, options)(options.directory)
        contenders = [
            Contender("empty", _further(server, ACKBOX, contest.enqueue, options)),
            Contender("grown", _on_top(history, contest.enqueue, options)),
            Contender("empty-work", _further(server, ACKBOX_50, contest.work, options)),
            Contender("grown-work", _on_top(history, contest.work, options)),
        ]
        summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    title = f"growth, {rows:,} completed rows against an empty ledger"
    bars = [Bar("grown", "empty", 0.80), Bar("grown-work", "empty-work", 0.80)]
    return Section(_titled(title, options), summaries, bars)


def latency(options: Options, progress: Progress) -> Section:
    load = Load(options.connections, options.seconds, rate=options.steady_rate)
    with cluster.running(options.directory, options.postgres_major) as server:

        def measured(instances: served.Instances) -> Callable[[Path], Sample]:
            def measure(directory: Path) -> Sample:
                url = server.fresh(DATABASE)
                return served.steady(instances, url, load, options, directory)

            return measure

        contenders = [
            Contender("two", measured(served.TWO)),
            Contender("no-notify", measured(served.NO_NOTIFY)),
        ]
        summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    title = f"from received to completed, two instances, {load.rate:,.0f} events/s to one"
    ceilings = [
        Ceiling("two", "p99_ms", must=50.0),
        Ceiling("no-notify", "p99_ms", must=1100.0),
    ]
    return Section(_titled(title, options), summaries, [], ceilings)


def _chosen(entrants: Sequence[Entrant], options: Options) -> list[Entrant]:
    return [entrant for entrant in entrants if entrant.name in options.only]


def _compare(
    entrants: Sequence[Entrant], measure: Measure, options: Options, progress: Progress
) -> dict[str, Summary]:
    with cluster.running(options.directory, options.postgres_major) as server:
        contenders = [
            contest.contender(entrant, _fresh(server, entrant, measure, options))
            for entrant in entrants
        ]
        return interleave(contenders, options.short_rounds, options.directory, progress)


def _fresh(
    server: Cluster, entrant: Entrant, measure: Measure, options: Options
) -> Callable[[Path], Sample]:
    return _on_new(lambda: server.fresh(DATABASE), entrant, measure, options)


def _further(
    server: Cluster, entrant: Entrant, measure: Measure, options: Options
) -> Callable[[Path], Sample]:
    return _on_new(lambda: server.further(EMPTY), entrant, measure, options)


def _on_new(
    make: Callable[[], str], entrant: Entrant, measure: Measure, options: Options
) -> Callable[[Path], Sample]:
    def on_new_database(directory: Path) -> Sample:
        url = make()
        contest.prepare(entrant, url, options)
        return measure(entrant, url, options)

    return on_new_database


def _on_top(history: grown.History, measure: Measure, options: Options) -> Callable[[Path], Sample]:
    """Measure on the grown ledger. The rows that a round adds are removed before the next round."""

    def on_grown_database(directory: Path) -> Sample:
        history.reset()
        return measure(ACKBOX_50, history.url, options)

    return on_grown_database


def _over_best(ours: str, summaries: Mapping[str, Summary], must: float) -> list[Bar]:
    peers = [peer.name for peer in PEERS if peer.name in summaries]
    measured = [name for name in peers if summaries[name].rate]
    best = max(measured, key=lambda name: summaries[name].rate, default=None)
    return [Bar(ours, best, must)] if best else []


def _titled(title: str, options: Options) -> str:
    return f"{title}, on PostgreSQL {options.postgres_major}"
