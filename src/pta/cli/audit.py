"""`pta audit`: a verdict on recorded answers, from a person's labels of a few that adaptation changed."""

import dataclasses
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pta.cli import options
from pta.cli.messages import say
from pta.cli.output import print_lines, require_place, write_json
from pta.door.claims import sole_writer
from pta.door.plain_files import require_plain_file
from pta.door.safe_text import printable
from pta.errors import InvalidParameter, UserMistake
from pta.measure.audit.audit import SCREEN, Audit
from pta.measure.audit.label_file import BACK, STOP, Session, count_audits, read_labels, simulated
from pta.measure.audit.page_server import PageServer
from pta.measure.audit.pictures import find_pictures
from pta.measure.audit.population import Draws
from pta.measure.audit.row_reading import read_population

_KEYS = {**dict(zip("12bn?", SCREEN, strict=True)), "z": BACK, "s": STOP, "q": STOP}
_LEGEND = "1, 2, b both, n neither (n CLASS or n none), ? cannot tell, z back, s stop"


@dataclasses.dataclass(frozen=True)
class AuditOptions:
    """What is audited, and how far."""

    rows: Annotated[Path, "Rows of pta predict (.jsonl or .csv), or a folder of --cluster.", Argument(metavar="ROWS")]
    classes: Annotated[
        str | None, "Classes to choose from for neither, besides those in the rows.", Option(metavar="FILE|A,B,C")
    ] = None
    seed: Annotated[int, "Seed of the order in which changed answers are drawn.", Option(min=0)] = 1
    precision: Annotated[
        float | None, "End when the interval is narrower, in points.", Option(min=0, show_default="never")
    ] = None
    most: Annotated[int | None, "End after so many labels.", Option(min=1, show_default="all")] = None

    def audit(self) -> Audit:
        """The audit before the first draw."""
        population = read_population(self.rows)
        population.require_changed()
        more = () if self.classes is None else options.read_classes(self.classes)
        names = tuple(sorted({*population.class_names, *more}))
        return Audit(Draws(population, self.seed), names, precision=self.precision, most=self.most)


def audit(
    given: AuditOptions,
    pictures: Annotated[
        str | None, "Folder, .csv or .tar of the pictures.", Option(metavar="SOURCE", show_default="the rows' paths")
    ] = None,
    labels: Annotated[
        Path | None, "CSV of the labels; an audit resumes from it.", Option(show_default="ROWS.labels.csv")
    ] = None,
    terminal: Annotated[bool, "Print paths and read answers here; no page."] = False,
    simulate: Annotated[
        Path | None, "CSV of known labels: how many would have been enough?", Option(metavar="LABELS")
    ] = None,
    json: Annotated[Path | None, "Write the verdict as JSON; - for stdout."] = None,
    replace: options.Replace = False,
) -> None:
    """Find out whether adaptation helped on recorded answers, by labelling a few of those that it changed."""
    require_place(json, replace=replace)
    begun, rows = given.audit(), Path(os.path.realpath(given.rows))
    audits = rows.with_name(f"{rows.name}.audits.json")
    if simulate is not None:
        _report(simulated(simulate, begun), 1, json)
        return
    if labels is None:
        labels = Path(os.path.relpath(rows.parent)) / f"{rows.name}.labels.csv"
        require_plain_file(labels)
    own = [os.path.realpath(one) for one in (rows, audits, labels)]
    if labels.suffix != ".csv" or own[2] in own[:2] or (json is not None and os.path.realpath(json) in own):
        raise InvalidParameter("--labels (which ends in .csv) and --json go to files of their own")
    count = partial(count_audits, audits, begun.draws)
    count()  # which refuses what is not a list of audits
    with sole_writer(labels):
        resumed = dataclasses.replace(begun, given=read_labels(labels, begun.draws, begun.class_names))
        if len(resumed) and resumed.ending is None:
            say(f"{labels}: {len(resumed):,} labels; the audit goes on after them")
        session = Session(resumed, labels, audits)
        if resumed.ending is None and terminal:
            _ask_here(session)
        elif resumed.ending is None:
            keys = [row.key for row in resumed.draws.rows[: given.most]]
            with PageServer(session, find_pictures(keys, pictures), count) as server:
                print(f"pta: open {server.link}", file=sys.stderr, flush=True)  # not into the log: it has the token
                server.is_over.wait()
        _report(session.audit, count(), json, *([f"Labels: {labels}"] if labels.exists() else []))


def _report(audit: Audit, audits: int, json: Path | None, *more: str) -> None:
    verdict = audit.verdict(audits)
    if write_json(json, verdict.record()):
        print_lines(*verdict.sentences(), *more)


def _ask_here(session: Session) -> None:
    """Ask about draws until the audit is over; the end of standard input stops it."""
    if sys.stdin is None:
        raise InvalidParameter("--terminal reads answers from standard input, and there is none")
    say(_LEGEND)
    with os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8", errors="replace") as lines:
        while session.audit.ending is None:
            audit = session.audit
            first, second = map(printable, audit.draws.answers(len(audit)))
            key = printable(audit.draws.rows[len(audit)].key)
            print(f"{len(audit) + 1}: {key}\n   1 {first}\n   2 {second}", file=sys.stderr, flush=True)
            said, _, label = (lines.readline() or "s").strip().partition(" ")
            try:
                session.say(len(audit) + 1, _KEYS[said], label.strip())
            except KeyError:
                say(_LEGEND)
            except UserMistake as mistake:
                say(str(mistake))
