"""Which HTML is read as prose, how it becomes Markdown, and that extracted text brings its
language with it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sources_reading import pdf

import unspool
from unspool.domain.documents import Kind
from unspool.sources.extraction import extract
from unspool.sources.folders import Found
from unspool.sources.pages import extract_page
from unspool.sources.reading import Reading, read

pytest.importorskip("selectolax", reason="pip install 'unspool[html]'")

WORDS = "The pump is started by hand, and it stops when the upper tank is full. "
FILL = f"<p>{WORDS * 8}</p>"
SAID = (WORDS * 8).strip()
TAGS = (
    "<p> <b> </b> </p> <table> <td> </table> <li> <ul> <pre> </pre> <h1> </h1> <br> <svg> <!-- "
    "--> # text"
).split()


def markdown(body: str) -> str:
    """What the body becomes, without the paragraph that makes a page long enough to be one."""
    result = extract_page(f"<html><body>{FILL * (1 + len(body) // 500)}<hr>{body}</body></html>")
    assert result is not None
    assert result.language == "markdown"
    return result.text.replace(SAID, "").strip()


def found(root: Path, name: str, data: bytes) -> Found:
    (root / name).write_bytes(data)
    return Found(path=name, file=str(root / name), size_bytes=len(data), modified_ns=0)


def test_a_page_of_prose_is_read_without_the_site_around_it(tmp_path: Path) -> None:
    source = f"""<!DOCTYPE html><html><head><title>Pumps &amp;
      tanks</title><style>p {{ color: red }}</style></head><body>
      <nav><a href="/">Home</a></nav><header>Banner</header>
      <main><h1>Pumps<a href="#p">¶</a></h1>{FILL}<script>let a = "no prose";</script>
      <h2 id=x>When it <em>stalls</em></h2><p hidden>Not shown</p><div>Wait<br>a minute.</div><aside>Adverts</aside></main>
      <footer>Imprint</footer></body></html>"""
    result = read(found(tmp_path, "a.html", source.encode()))
    assert isinstance(result, Reading)
    assert result.text == f"# Pumps\n\n{SAID}\n\n## When it stalls\n\nWait\na minute."
    assert (result.title, result.language, result.encoding) == ("Pumps & tanks", "markdown", "")


def test_without_a_title_the_first_heading_names_the_page() -> None:
    result = extract_page(f"<h2>Low</h2><h1>The <b>manual</b></h1>{FILL}")
    assert result is not None
    assert result.title == "The manual"


def test_a_small_main_or_several_articles_are_not_the_page() -> None:
    for body in (
        f"<main>Top</main>{FILL}",
        f"<article>{FILL}</article><article>{FILL}Top</article>",
    ):
        result = extract_page(body)
        assert result is not None
        assert SAID in result.text
        assert "Top" in result.text


@pytest.mark.parametrize(
    "mark",
    [
        "{{ user.name }}",
        "{% if user %}",
        "<%= user %>",
        "<?php echo $user; ?>",
        '<a href="{{ url }}">here</a>',
    ],
)
def test_a_template_stays_source(tmp_path: Path, mark: str) -> None:
    source = f"<html><body><h1>Hello</h1>{FILL}<p>{mark}</p></body></html>"
    result = read(found(tmp_path, "a.html", source.encode()))
    assert isinstance(result, Reading)
    assert (result.text, result.language, result.encoding) == (source, "", "utf-8")


def test_a_manual_that_shows_templates_is_no_template() -> None:
    shown = markdown(
        "<pre>{{ name }}</pre><script>x = {{}}</script><p>Write <code>{% if %}</code> there.</p>"
    )
    assert shown == "```\n{{ name }}\n```\n\nWrite {% if %} there."


@pytest.mark.parametrize(
    "source",
    [
        '<html><body><div id="root"></div><script>'
        + "let a = 1; // words in a script\n" * 100
        + "</script></body></html>",
        f"<html><body>{FILL}<script>{'let a = 1;' * 400}</script></body></html>",
        "<html><body><p>Too short.</p>" + "<!-- x -->" * 10 + "</body></html>",
        f"<html><body><div>{SAID}</div></body></html>",  # neither a paragraph nor a heading
        f"<html><body><nav>{FILL}</nav></body></html>",
        f"<html><body><template>{FILL}</template></body></html>",
        "<frameset><frame src=a></frameset>" * 50,
    ],
)
def test_what_is_mostly_program_stays_source(tmp_path: Path, source: str) -> None:
    assert extract_page(source) is None
    result = read(found(tmp_path, "a.htm", source.encode()))
    assert isinstance(result, Reading)
    assert (result.text, result.language) == (source, "")


def test_entities_are_decoded_and_invisible_characters_dropped() -> None:
    assert (
        markdown("<p>f&uuml;r&nbsp;&lt;b&gt; &#x41;&#66; &amp;amp; &nosuch; Dampf&shy;schiff</p>")
        == "für <b> AB &amp; &nosuch; Dampfschiff"
    )


def test_nested_lists_are_indented_and_keep_their_paragraphs() -> None:
    body = "<ul><li>one<ol><li>deep<li><p>first</p><p>second</p></ol>back<li>two</ul><p>after</p>"
    assert markdown(body) == "- one\n  - deep\n  - first\n    second\n  back\n- two\n\nafter"


def test_rows_are_lines_and_a_table_for_layout_is_none() -> None:
    data = "<table><caption>Sizes</caption><tr><th>name<th>size<tr><td><p>a<br>b</p><td><ul><li>1<li>2</ul></table><table><tr><td>x</table>"
    assert markdown(data) == "Sizes\n\nname | size\na b | 1 2\n\nx"
    layout = f"<table><tr><td>Menu</td><td><h2>Title</h2>Text<table><tr><td>1</td><td>2</td></tr></table>{'Rest'}</td></tr></table>"
    assert markdown(layout) == "Menu\n\n## Title\n\nText\n\n1 | 2\n\nRest"


def test_program_text_is_fenced_as_it_stands() -> None:
    assert (
        markdown("<pre><code>if a:\n    b &lt; 1\n\n\n# no heading\n</code></pre>")
        == "```\nif a:\n    b < 1\n\n\n# no heading\n```"
    )
    assert markdown("<pre>a\n```\nb</pre>") == "````\na\n```\nb\n````"
    assert markdown("<pre><div>a</div><div>b</div></pre><pre>\n</pre>") == "```\na\nb\n```"


def test_text_that_looks_like_markdown_is_no_heading() -> None:
    assert (
        markdown("<p># one</p><p>two<br>---</p><p>```</p><p>#tag</p>")
        == "\\# one\n\ntwo\n\\---\n\n\\```\n\n#tag"
    )


@pytest.mark.parametrize(
    "tail",
    [
        "<p>open <b>bold <i>both</b> end",
        "</div></p><td>x</table>",
        "<a href='",
        "<!-- never",
        "<p a=<b>>",
        "&#xD800;&#0;",
    ],
)
def test_malformed_pages_are_read_as_a_browser_would(tail: str) -> None:
    result = extract_page(f"<h1>Broken<p>{WORDS * 8}{tail}")
    assert result is not None
    assert SAID in result.text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TAGS), max_size=30))
def test_any_tags_in_any_order_give_a_page_or_none(tags: list[str]) -> None:
    result = extract_page(FILL + " ".join(tags))
    assert result is None or SAID in result.text


@pytest.mark.parametrize(
    "tags",
    [
        "<div>" * 100_000,
        "<ul><li>" * 50_000,
        "<b><div></b>" * 50_000,
        "<dd><li>" * 50_000,
        "<table><tr><td>" * 30_000,
        "<div><!--</div>-->" * 50_000,
        '<div a="</div>">' * 50_000,
        "<div><script></div></script>" * 30_000,
        "<svg><style>" + "<div>" * 100_000,
        "<p>" + "".join(f"<b a={number}>" for number in range(1000)) + "<p>x" * 50_000,
        "<!--" * 200_000,
        '<a b="' * 100_000,
        "<" * 500_000,
        "</div>" * 100_000,
    ],
    ids=lambda tags: tags[:16],
)
def test_pages_made_to_stall_the_parser_do_not(tags: str) -> None:
    prose = FILL * (1 + len(tags) // 1000)
    started = time.monotonic()
    for source in (prose + tags, tags + prose):
        result = extract_page(source)
        assert result is None or SAID in result.text
    assert time.monotonic() - started < 15  # the first one alone took the parser 40


def test_a_page_nested_too_deeply_stays_source(tmp_path: Path) -> None:
    source = f"{FILL}\n" * 500 + "<div>\n" * 100_000
    result = read(found(tmp_path, "a.html", source.encode()))
    assert isinstance(result, Reading)
    assert (result.text, result.language) == (source, "")


def test_moderately_deep_pages_are_read() -> None:
    assert markdown("<div>" * 500 + "deep" + "</div>" * 500) == "deep"
    assert markdown("<ul><li>" * 50 + "deep") == "- deep"


def test_a_page_on_one_long_line_is_prose_and_not_minified(tmp_path: Path) -> None:
    result = read(
        found(
            tmp_path,
            "a.xhtml",
            f"<?xml version='1.0'?><html><body>{FILL * 30}</body></html>".encode(),
        )
    )
    assert isinstance(result, Reading)
    assert result.language == "markdown"


def test_without_the_extra_html_stays_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    source = f"<title>Pumps</title><h1>Pumps</h1>\n{FILL}"
    file = found(tmp_path, "a.html", source.encode())
    code = (
        "import sys; sys.modules['selectolax'] = None\n"
        "from unspool.sources.folders import Found\nfrom unspool.sources.reading import read\n"
        "reading = read(Found(path='a.html', file=sys.argv[1], size_bytes=1, modified_ns=0))\n"
        "print(repr((reading.text, reading.title, reading.language)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, file.file], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == repr((source, "Pumps", ""))


def docx_bytes(padding: str = "") -> bytes:
    docx = pytest.importorskip("docx", reason="pip install 'unspool[docx]'")
    document = docx.Document()
    document.add_heading("The pump", 0)
    document.add_heading("Starting", 1)
    document.add_paragraph("# not a heading" + padding)
    own = document.styles.add_style("Own", 1)
    own.base_style = document.styles["Heading 2"]
    document.add_paragraph("By\nhand", style="Own")
    document.add_paragraph("Turn the crank slowly. " + padding)
    document.add_heading("Very deep", 9)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def test_the_headings_of_a_docx_become_markdown() -> None:
    result = extract(docx_bytes(), "a.docx")
    assert result is not None
    assert result.language == "markdown"
    assert result.text == (
        "# The pump\n\n# Starting\n\n\\# not a heading\n\n## By hand\n\nTurn the crank "
        "slowly.\n\n###### Very deep"
    )


def test_extracted_text_is_cut_and_ranked_as_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("pypdf", reason="pip install 'unspool[pdf]'")
    folder = tmp_path / "manuals"
    folder.mkdir()
    (folder / "a.docx").write_bytes(docx_bytes(WORDS * 15))
    (folder / "b.pdf").write_bytes(pdf("The valve opens at noon"))
    (folder / "c.html").write_text(
        f"<h1>Tanks</h1>{FILL * 3}<h2>Cleaning</h2><p>Scrub the tank with sand.</p>{FILL * 2}"
    )
    (folder / "d.html").write_text("<div id=app></div>")
    given = unspool.Settings.load(
        arguments={"database": f"sqlite:///{tmp_path}/unspool.db"}, environment={}, folder=tmp_path
    )
    with unspool.open(settings=given) as corpus:
        corpus.index(folder)
        records = {record.path: record for record in corpus.documents()}
        crank, valve, sand = (
            corpus.search(query).hits[0].chunk
            for query in ("turn the crank slowly", "valve opens at noon", "scrub with sand")
        )
    assert {path: record.language for path, record in records.items()} == {
        "a.docx": "markdown",
        "b.pdf": "text",
        "c.html": "markdown",
        "d.html": "html",
    }
    assert (crank.path, crank.headings) == ("a.docx", ("Starting", "By hand"))
    assert (valve.path, valve.text) == ("b.pdf", "The valve opens at noon")
    assert (sand.path, sand.headings) == ("c.html", ("Tanks", "Cleaning"))
    assert records["c.html"].kind is Kind.DOCS
