"""Commands that look after the corpus: forget, doctor, repair, reembed, migrate, eval."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspool.domain.reports import ReembedPlan
from unspool.errors import ConfigError, InputError
from unspool.interfaces import render, terminal
from unspool.interfaces.cli.door import color, command, load_settings, note, opened, print_json
from unspool.interfaces.cli.looking import show
from unspool.interfaces.cli.places import stored
from unspool.interfaces.cli.progress import Bar

if TYPE_CHECKING:
    from unspool.domain.reports import Check
    from unspool.settings import Settings

UNWELL = 2


@command(
    "forget",
    "Remove a document or a project",
    examples=("unspool forget --project notes draft.md", "unspool forget --project notes --all"),
)
@click.argument("path", required=False)
@click.option(
    "--project",
    "-p",
    required=True,
    metavar="NAME",
    help="The project to forget, or the one that holds the PATH.",
)
@click.option("--all", "everything", is_flag=True, help="The whole project, without a question.")
def forget(
    flags: dict[str, str | None], as_json: bool, path: str | None, project: str, everything: bool
) -> None:
    """Remove a document, or with --all a whole project, from the corpus; no file on disk is
    touched.
    """
    if everything == (path is not None):
        raise click.UsageError("name either the PATH of a document or --all for the whole project")
    with opened(flags) as corpus:
        if path is not None and not corpus.documents(project=project, path=path):
            path = stored(corpus, path, project)[1]
        count = corpus.forget(project=project, path=path)
    if as_json:
        print_json({"project": project, "path": path, "documents": count})
        return
    what = (
        f"project {project} with {count} documents"
        if path is None
        else f"{path} of project {project}"
    )
    show([[("forgotten: ", ""), (what, terminal.NAME)]])


@command(
    "doctor",
    "Check everything, change nothing",
    examples=("unspool doctor", "unspool doctor --json"),
)
def doctor(flags: dict[str, str | None], as_json: bool) -> int:
    """Check the installation, the catalog and the index, and say how to cure what is wrong;
    nothing is changed.
    """
    from unspool import diagnosis

    try:
        settings = load_settings(flags)
    except ConfigError as error:
        found: list[Check] = diagnosis.diagnose_without_settings(error)
    else:
        found = diagnosis.diagnose(settings)
    if as_json:
        print_json(render.checks(found))
    else:
        show(terminal.checks(found))
    return 0 if all(one.ok for one in found) else UNWELL


@command(
    "repair",
    "Rebuild what is missing or damaged",
    examples=("unspool repair", "unspool repair --database sqlite:///notes.db"),
)
def repair(flags: dict[str, str | None], as_json: bool) -> None:
    """Bring the index up to date, and rebuild missing or damaged parts."""
    with opened(flags) as corpus, Bar() as bar:
        repaired = corpus.refresh(on_progress=bar)
        projects = corpus.status()
    if as_json:
        print_json(
            {"projects": [render.project_status(one) for one in projects], "repaired": repaired}
        )
        return
    show([[(one, "")] for one in repaired])
    show(
        [
            [
                ("repaired: ", ""),
                (
                    f"{len(projects)} projects, {sum(one.chunks for one in projects)} chunks",
                    terminal.NAME,
                ),
            ]
        ]
    )


@command(
    "reembed",
    "Go over to another embedder",
    examples=(
        "unspool reembed --embedder onnx:models/all-MiniLM-L6-v2",
        "unspool reembed --embedder static --yes --drop-old",
    ),
    takes=("embedder", "database"),
)
@click.option("--yes", is_flag=True, help="Yes, whatever it costs.")
@click.option(
    "--drop-old",
    is_flag=True,
    help=(
        "Forget the vectors of every embedder but the one in use; without it they are kept to go "
        "back to."
    ),
)
def reembed(flags: dict[str, str | None], as_json: bool, yes: bool, drop_old: bool) -> int:
    """Embed everything that is stored with another embedder, and go over to it in one step.
    Searches go on meanwhile, and an attempt that was interrupted goes on where it was when the
    command is given again."""
    from unspool.switching import drop_old as drop
    from unspool.switching import reembed as go_over

    settings = load_settings(flags)
    if settings.origins["embedder"] == "default" and not drop_old:
        raise click.UsageError(
            "name the embedder to go over to: --embedder NAME, or UNSPOOL_EMBEDDER"
        )
    # what a variable names is not gone over to by the way
    if drop_old and flags["embedder"] is None:
        dropped = drop(settings=settings)
        if as_json:
            print_json({"dropped": dropped})
        else:
            show(
                [
                    [
                        ("forgotten: ", ""),
                        (", ".join(dropped) or "nothing, there are no others", terminal.NAME),
                    ]
                ]
            )
        return 0
    plans: list[ReembedPlan] = []

    def confirm(plan: ReembedPlan) -> bool:
        plans.append(plan)
        if not as_json:
            terminal.Screen(sys.stderr, color=color()).write(terminal.reembed_plan(plan))
        if yes or plan.is_done:
            return True
        if as_json or not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here; give --yes if this is meant")
        return click.confirm("Go on?", err=True)

    with Bar() as bar:
        report = go_over(settings=settings, confirm=confirm, drop_old=drop_old, on_progress=bar)
    if report is None:
        return 1
    if as_json:
        print_json(render.reembed(plans[0], report))
        return 0
    show(terminal.reembed_report(report))
    for warning in report.warnings:
        note(warning, kind="warning")
    if report.before != report.after:
        note(
            f"set UNSPOOL_EMBEDDER={settings.embedder.name} from now on; what is open already "
            f"follows by itself"
        )
    return 0


@command(
    "migrate",
    "Bring the catalog to another version",
    examples=("unspool migrate", "unspool migrate base --yes --database sqlite:///old.db"),
    takes=("database",),
)
@click.argument("target", default="head", metavar="[REVISION]")
@click.option("--yes", is_flag=True, help="Yes, remove every table; 'base' needs it.")
@click.option(
    "--partitions",
    type=int,
    metavar="N",
    help="Keep chunks on PostgreSQL in N partitions by project; 1 is for whole tables.",
)
def migrate(
    flags: dict[str, str | None], as_json: bool, target: str, yes: bool, partitions: int | None
) -> None:
    """Bring the catalog to a REVISION: 'head', the default, is the newest, and 'base' removes
    every table with all that is in it.
    """
    from unspool.catalog import Catalog, schema
    from unspool.catalog.database import describe_place

    wanted = schema.HEAD if target == "head" else target
    if wanted not in (*schema.KNOWN_REVISIONS, "base"):
        raise InputError(
            f"revision {target!r} does not exist; it is head, base or one of "
            f"{', '.join(schema.KNOWN_REVISIONS)}"
        )
    if wanted == "base" and not yes:
        raise click.UsageError(
            "'base' removes every table with all that is in it; give --yes if that is meant"
        )
    settings = load_settings(flags)
    place = describe_place(settings.database_address)
    if partitions is not None:
        _check_partitions(settings, wanted, partitions)
    before = Catalog.migrate(settings.database_address, wanted, options=settings.database)
    if partitions is not None:
        _partition(settings, partitions)
    if as_json:
        print_json({"catalog": place, "before": before, "after": wanted, "partitions": partitions})
    else:
        show(
            [
                [
                    (
                        f"{place}: {before} -> {wanted}"
                        if before != wanted
                        else f"{place} is at {wanted} already",
                        "",
                    )
                ]
            ]
        )
        if partitions is not None:
            show(
                [
                    [
                        (
                            f"chunks, words and vectors are in {partitions} partitions by project"
                            if partitions > 1
                            else "tables are whole",
                            "",
                        )
                    ]
                ]
            )


def _check_partitions(settings: Settings, target: str, partitions: int) -> None:
    """Refuse what cannot be done before anything is."""
    from unspool.catalog import schema
    from unspool.catalog.database import get_engine_name

    if get_engine_name(settings.database_address) != "postgresql":
        raise InputError("only a catalog on PostgreSQL can be partitioned; leave out --partitions")
    if target != schema.HEAD:
        raise click.UsageError("--partitions is for the newest revision; leave out the other")
    from unspool.index.postgres.partitioning import check_number

    check_number(partitions)


def _partition(settings: Settings, partitions: int) -> None:
    """Rearrange a catalog's tables, and build anew what went with the old ones."""
    from unspool.catalog import Catalog, projects, spaces
    from unspool.catalog.postgres import PostgresCatalog
    from unspool.index.postgres.partitioning import partition_catalog
    from unspool.session import make_store_opener

    with (
        closing(Catalog.open(settings.database_address, options=settings.database)) as catalog,
        Bar() as bar,
    ):
        assert isinstance(catalog, PostgresCatalog)
        partition_catalog(catalog, partitions)
        with catalog.read() as connection:
            space, rows = spaces.find_active_space(connection), projects.list_projects(connection)
        if space is None:
            return
        with closing(make_store_opener(catalog, settings)(space)) as store:
            for row in rows:
                store.repair(row.id, on_progress=bar)


@command(
    "eval",
    "Measure search quality on a test set",
    examples=(
        "unspool eval datasets/scifact",
        "unspool eval datasets/cosqa --server postgresql://unspool@localhost/test --json",
    ),
    takes=("alpha", "chunk_tokens", "embedder"),
)
@click.option(
    "--server",
    default="",
    metavar="ADDRESS",
    help="Measure on a PostgreSQL server, in a schema that is gone afterwards.",
)
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
def evaluate(flags: dict[str, str | None], as_json: bool, folder: Path, server: str) -> None:
    """Measure search quality on a test set in DIR: corpus.jsonl, queries.jsonl and
    qrels/test.tsv; your own catalog is not touched.
    """
    from unspool.evaluation import evaluate as measure

    settings = load_settings(flags)
    with Bar() as bar:
        values: dict[str, Any] = asdict(
            measure(
                folder,
                settings=settings,
                alpha=settings.search.alpha,
                server=server,
                on_progress=bar,
            )
        )
    if as_json:
        print_json(values)
    else:
        show(
            terminal.table(
                ["measure", "value"],
                [[(name, terminal.NAME), (str(value), "")] for name, value in values.items()],
            )
        )
