"""Commands that maintain the corpus: forget, doctor, repair, reembed, move, migrate, eval."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from unspool import ReembedPlan, Settings, moving, switching, wire
from unspool.errors import ConfigError, InputError
from unspool.interfaces import terminal
from unspool.interfaces.cli.commands import (
    Flags,
    command,
    load_settings,
    note,
    open_corpus,
    show,
    show_result,
)
from unspool.interfaces.cli.places import find_document
from unspool.interfaces.cli.progress import Bar

CHECK_FAILED = 2
DECLINED = 1


@command(
    "forget",
    "Delete a document or a project",
    examples=("unspool forget --project notes draft.md", "unspool forget --project notes --all"),
)
@click.argument("path", required=False)
@click.option(
    "--project",
    "-p",
    required=True,
    metavar="NAME",
    help="The project to delete, or the project of PATH.",
)
@click.option("--all", "everything", is_flag=True, help="The whole project, without asking.")
def forget(flags: Flags, as_json: bool, path: str | None, project: str, everything: bool) -> None:
    """Delete a document, or with --all a whole project, from the corpus. No file on disk is
    deleted.
    """
    if everything == (path is not None):
        raise click.UsageError("name either the PATH of a document or --all for the whole project")
    with open_corpus(flags) as corpus:
        if path is not None and not corpus.documents(project=project, path=path):
            path = find_document(corpus, path, project)[1]
        count = corpus.forget(project=project, path=path)
    documents = terminal.pluralize(count, "document")
    whole, single = f"project {project} with {documents}", f"{path} of project {project}"
    line = [("forgotten: ", ""), (whole if path is None else single, terminal.NAME)]
    show_result({"project": project, "path": path, "documents": count}, [line], as_json=as_json)


@command(
    "doctor",
    "Check everything, change nothing",
    examples=("unspool doctor", "unspool doctor --json"),
)
def diagnose(flags: Flags, as_json: bool) -> int:
    """Check the installation, the catalog and the index, and report the cure of each problem.
    Nothing is changed.
    """
    from unspool import diagnosis

    try:
        checks = diagnosis.diagnose(load_settings(flags))
    except ConfigError as error:
        checks = diagnosis.diagnose_without_settings(error)
    is_ok = all(one.ok for one in checks)
    show_result({"ok": is_ok, "checks": checks}, terminal.render_checks(checks), as_json=as_json)
    return 0 if is_ok else CHECK_FAILED


@command(
    "repair",
    "Rebuild missing and damaged parts of the index",
    examples=("unspool repair", "unspool repair --database sqlite:///notes.db"),
)
def repair(flags: Flags, as_json: bool) -> None:
    """Bring the index up to date, and rebuild missing or damaged parts."""
    with open_corpus(flags) as corpus, Bar() as bar:
        repaired = corpus.refresh(on_progress=bar)
        projects = corpus.status()
    chunks = terminal.pluralize(sum(one.chunks for one in projects), "chunk")
    counts = f"{terminal.pluralize(len(projects), 'project')}, {chunks}"
    lines = [*([(one, "")] for one in repaired), [("repaired: ", ""), (counts, terminal.NAME)]]
    show_result({"projects": projects, "repaired": repaired}, lines, as_json=as_json)


@command(
    "reembed",
    "Switch to another embedder",
    examples=(
        "unspool reembed --embedder onnx:models/all-MiniLM-L6-v2",
        "unspool reembed --embedder static --yes --drop-old",
    ),
    takes=("embedder", "database"),
)
@click.option("--yes", is_flag=True, help="Do not ask, whatever it costs.")
@click.option(
    "--drop-old",
    is_flag=True,
    help="Delete the vectors of every embedder but the active one. Without it they are kept, to "
    "switch back.",
)
def reembed(flags: Flags, as_json: bool, yes: bool, drop_old: bool) -> int:
    """Embed everything that is stored with another embedder, and switch to it in one step. Searches
    continue meanwhile. If it is interrupted, the same command resumes it.
    """
    settings = load_settings(flags)
    if settings.origins["embedder"] == "default" and not drop_old:
        raise click.UsageError(
            "name the embedder to switch to: --embedder NAME, or UNSPOOL_EMBEDDER"
        )
    # only a flag switches here: a variable may name the embedder of another catalog
    if drop_old and flags["embedder"] is None:
        dropped = switching.drop_old(settings=settings)
        names = ", ".join(dropped) or "nothing, there are no others"
        line = [("deleted: ", ""), (names, terminal.NAME)]
        return show_result({"dropped": dropped}, [line], as_json=as_json)
    plans: list[ReembedPlan] = []

    def confirm(plan: ReembedPlan) -> bool:
        plans.append(plan)
        return _confirm(plan, as_json=as_json, yes=yes)

    with Bar() as bar:
        report = switching.reembed(
            settings=settings, confirm=confirm, drop_old=drop_old, on_progress=bar
        )
    if report is None:
        return DECLINED
    result = wire.encode(plans[0]) | wire.encode(report)
    lines = terminal.render_reembed_report(report)
    show_result(result, lines, as_json=as_json, report=report)
    if report.before != report.after:
        note(
            f"set UNSPOOL_EMBEDDER={settings.embedder.name} from now on; open processes switch by "
            f"themselves"
        )
    return 0


def _confirm(plan: ReembedPlan, *, as_json: bool, yes: bool) -> bool:
    """Show the cost of a switch, and ask."""
    if not as_json:
        show(terminal.render_reembed_plan(plan), sys.stderr)
    if yes or plan.is_done:
        return True
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here; give --yes to confirm")
    return click.confirm("Continue?", err=True)


@command(
    "move",
    "Move vectors to another store, or the catalog to another database",
    examples=("unspool move --to postgresql://me@db/unspool", "unspool move --to catalog"),
    takes=("database", "vectors_key"),
)
@click.option(
    "--to",
    required=True,
    metavar="ADDRESS",
    help="Store for the vectors, see `unspool stores`, or database for everything. 'catalog' is "
    "the database of the catalog, for vectors that are elsewhere.",
)
def move(flags: Flags, as_json: bool, to: str) -> None:
    """Fill another vector store or another database, and compare it with the catalog. Nothing is
    embedded, and the source stays as it is. Searches and writes continue. If it is interrupted, the
    same command resumes it. Run it again just before you change the setting.
    """
    with Bar() as bar:
        report = moving.move(to=to, settings=load_settings(flags), on_progress=bar)
    show_result(wire.encode(report), terminal.render_move_report(report), as_json=as_json)


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
    help="Store chunks on PostgreSQL in N partitions by project; 1 means whole tables.",
)
def migrate(flags: Flags, as_json: bool, target: str, yes: bool, partitions: int | None) -> None:
    """Bring the catalog to a REVISION. 'head', the default, is the newest. 'base' removes every
    table with its content.
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
        raise click.UsageError("'base' removes every table with its content; give --yes to confirm")
    settings = load_settings(flags)
    place = describe_place(settings.database_address)
    if partitions is not None:
        _check_partitions(settings, wanted, partitions)
    before = Catalog.migrate(settings.database_address, wanted, options=settings.database)
    if partitions is not None:
        _partition(settings, partitions)
    is_same = before == wanted
    lines = [f"{place} is at {wanted} already" if is_same else f"{place}: {before} -> {wanted}"]
    if partitions is not None:
        parts = f"chunks, words and vectors are in {partitions} partitions by project"
        lines.append(parts if partitions > 1 else "tables are whole")
    show_result(
        {"catalog": place, "before": before, "after": wanted, "partitions": partitions},
        [[(line, "")] for line in lines],
        as_json=as_json,
    )


def _check_partitions(settings: Settings, target: str, partitions: int) -> None:
    """Refuse an impossible partitioning before anything changes."""
    from unspool.catalog import schema
    from unspool.catalog.database import get_engine_name

    if get_engine_name(settings.database_address) != "postgresql":
        raise InputError("only a catalog on PostgreSQL can be partitioned; leave out --partitions")
    if target != schema.HEAD:
        raise click.UsageError("--partitions is for the newest revision; leave out the other")
    from unspool.index.postgres.partitioning import check_number

    check_number(partitions)


def _partition(settings: Settings, partitions: int) -> None:
    """Partition the tables of a catalog, and rebuild the indexes that the old tables had."""
    from unspool.catalog import Catalog, projects, spaces
    from unspool.catalog.postgres import PostgresCatalog
    from unspool.index.postgres.partitioning import partition_catalog
    from unspool.session import make_index_opener

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
        with closing(make_index_opener(catalog, settings)(space)) as indexes:
            for row in rows:
                indexes.repair(row.id, on_progress=bar)


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
    help="Measure on a PostgreSQL server, in a temporary schema.",
)
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
def evaluate(flags: Flags, as_json: bool, folder: Path, server: str) -> int:
    """Measure search quality on a test set in DIR: corpus.jsonl, queries.jsonl and
    qrels/test.tsv. Your own catalog is not used.
    """
    from unspool import evaluation

    settings = load_settings(flags)
    with Bar() as bar:
        result = evaluation.evaluate(
            folder,
            settings=settings,
            alpha=settings.search.alpha,
            server=server,
            on_progress=bar,
        )
    values = asdict(result)
    rows = [[(name, terminal.NAME), (str(value), "")] for name, value in values.items()]
    return show_result(values, terminal.render_table(["measure", "value"], rows), as_json=as_json)
