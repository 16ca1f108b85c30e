"""Code is cut along its syntax tree, and each piece knows what it is and what it defines."""

from __future__ import annotations

import random
import re
import sys
import threading

import pytest

from unspool.chunking import chunk, syntax
from unspool.chunking.languages import GRAMMARS
from unspool.domain.documents import Kind, Piece


def count(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def cut(text: str, language: str, *, limit: int = 512, target: int | None = None) -> list[Piece]:
    return chunk(text, language=language, kind=Kind.CODE, limit=limit, target=target, count=count)


def texts(text: str, pieces: list[Piece]) -> list[str]:
    return [text[piece.start : piece.end] for piece in pieces]


SNIPPETS: dict[str, tuple[str, str, list[str]]] = {
    "python": (
        '''
"""Counters."""
import os

MAX_SIZE = 3

class Counter:
    """Counts."""

    def add(self, item):
        return item

    @property
    def total(self):
        return 1

async def main():
    pass
''',
        "Counter",
        ["MAX_SIZE", "Counter", "add", "total", "main"],
    ),
    "javascript": (
        """
const limit = 3;
export const half = (x) => x / 2;
function walk(node) { return node; }
class Shop extends Base {
  constructor() { super(); }
  async open() { return 1; }
}
exports.start = function () {};
module.exports.port = 80;
const api = { get(x) { return x; }, put: (y) => y };
Shop.prototype.close = function () {};
""",
        "half",
        [
            "limit",
            "half",
            "walk",
            "Shop",
            "constructor",
            "open",
            "start",
            "port",
            "api",
            "get",
            "put",
            "close",
        ],
    ),
    "typescript": (
        """
export interface Point { x: number; y: number }
export type Id = string | number;
enum Color { Red, Green }
namespace Geometry { export function area(p: Point): number { return p.x; } }
abstract class Shape { abstract draw(): void; private name = () => "x"; }
export const origin: Point = { x: 0, y: 0 };
""",
        "Point",
        ["Point", "Id", "Color", "Geometry", "area", "Shape", "draw", "name", "origin"],
    ),
    "tsx": (
        """
type Props = { title: string };
export function Title({ title }: Props) { return <h1>{title}</h1>; }
export const Page = () => <Title title="a" />;
""",
        "Props",
        ["Props", "Title", "Page"],
    ),
    "java": (
        """
package shop;
import java.util.List;
/** A cart. */
public class Cart implements Box {
    private final List<Item> items;
    public Cart(List<Item> items) { this.items = items; }
    @Override
    public int size() { return items.size(); }
    enum State { OPEN, CLOSED }
}
interface Box { int size(); }
record Item(String name) {}
""",
        "Cart",
        ["Cart", "Cart", "size", "State", "Box", "Item"],
    ),
    "go": (
        """
package shop

const Limit = 3

var (
	first = 1
)

type Cart struct { items []Item }

type Box interface { Size() int }

func NewCart() *Cart { return &Cart{} }

func (c *Cart) Add(item Item) { c.items = append(c.items, item) }

func (s Stack[T]) Push(x T) {}
""",
        "Cart",
        ["Limit", "first", "Cart", "Box", "NewCart", "Add", "Push"],
    ),
    "rust": (
        """
const LIMIT: usize = 3;
#[derive(Debug)]
pub struct Cart<T> { items: Vec<T> }
pub trait Boxed { fn size(&self) -> usize; }
impl<T> Boxed for Cart<T> { fn size(&self) -> usize { self.items.len() } }
enum State { Open, Closed }
mod inner { pub fn helper() {} }
macro_rules! shout { () => {} }
""",
        "Cart",
        ["LIMIT", "Cart", "Boxed", "size", "State", "inner", "helper", "shout"],
    ),
    "c": (
        """
#include <stdio.h>
#define LIMIT 3
#define SQUARE(x) ((x) * (x))
typedef struct cart { int size; } cart_t;
enum state { OPEN, CLOSED };
static const char *names[] = { "a", "b" };
static int add(struct cart *c, int x) { return c->size + x; }
char *name_of(int i) { return 0; }
""",
        "SQUARE",
        ["LIMIT", "SQUARE", "cart", "cart_t", "state", "names", "add", "name_of"],
    ),
    "cpp": (
        """
namespace shop {
template <typename T>
class Cart : public Box {
 public:
  explicit Cart(int n) : n_(n) {}
  ~Cart() {}
  int size() const { return n_; }
  bool operator==(const Cart& other) const { return true; }
 private:
  int n_;
};
using Id = int;
}
int shop::Cart<int>::count() { return 1; }
std::string& Store::name() { return name_; }
""",
        "shop",
        ["shop", "Cart", "Cart", "~Cart", "size", "operator==", "Id", "count", "name"],
    ),
    "csharp": (
        """
using System;
namespace Shop
{
    public record Item(string Name);
    public interface IBox { int Size(); }
    public class Cart : IBox
    {
        public Cart() { }
        public int Count { get; set; }
        [Obsolete]
        public int Size() => Count;
        enum State { Open }
    }
}
""",
        "Shop",
        ["Shop", "Item", "IBox", "Size", "Cart", "Count", "State"],
    ),
    "ruby": (
        """
LIMIT = 3
module Shop
  class Cart < Box
    MAX = 2
    def initialize(items)
      @items = items
    end

    def self.build
      new([])
    end

    def empty?
      @items.empty?
    end
  end
end
""",
        "Shop",
        ["LIMIT", "Shop", "Cart", "MAX", "initialize", "build", "empty?"],
    ),
    "php": (
        """<?php
namespace App;
const LIMIT = 3;
interface Box { public function size(): int; }
final class Cart implements Box {
    public function size(): int { return 1; }
}
trait Named { function name() { return 'x'; } }
function helper($x) { return $x; }
""",
        "Box",
        ["LIMIT", "Box", "size", "Cart", "Named", "name", "helper"],
    ),
    "bash": (
        """#!/bin/bash
LIMIT=3
readonly PORT=80
usage() {
  echo "usage"
}
function main {
  usage
}
main "$@"
""",
        "usage",
        ["LIMIT", "PORT", "usage", "main"],
    ),
    "swift": (
        """
import Foundation
let limit = 3
protocol Box { func size() -> Int }
class Cart: Box {
    init(items: [Int]) { self.items = items }
    func size() -> Int { return 1 }
}
struct Point { var x: Int }
enum State { case open }
extension Cart { func clear() {} }
func helper() {}
""",
        "Box",
        ["limit", "Box", "size", "Cart", "init", "Point", "State", "clear", "helper"],
    ),
    "kotlin": (
        """
package shop
const val LIMIT = 3
interface Box {
    fun size(): Int
}
data class Cart(val items: List<Int>) : Box {
    override fun size(): Int = items.size
    companion object {
        fun build() = Cart(listOf())
    }
}
object Registry {
    fun find() {}
}
enum class State { OPEN }
fun String.shout() = this
""",
        "Box",
        ["LIMIT", "Box", "size", "Cart", "build", "Registry", "find", "State", "shout"],
    ),
    "scala": (
        """
package shop
trait Box { def size: Int }
case class Cart(items: List[Int]) extends Box {
  def size: Int = items.length
}
object Cart {
  val Limit = 3
  def build(): Cart = Cart(Nil)
}
""",
        "Box",
        ["Box", "size", "Cart", "Limit", "build"],
    ),
    "lua": (
        """
local M = {}
local function helper(x) return x end
function M.open(path) return path end
function M:close() end
M.read = function() end
return M
""",
        "helper",
        ["M", "helper", "open", "close", "read"],
    ),
    "sql": (
        """
-- People.
CREATE TABLE shop.people (id INTEGER PRIMARY KEY, name TEXT);
CREATE INDEX people_by_name ON people (name);
CREATE VIEW adults AS SELECT * FROM people WHERE age > 17;
CREATE FUNCTION total() RETURNS INTEGER AS $$ SELECT 1; $$ LANGUAGE sql;
SELECT * FROM adults;
""",
        "people",
        ["people", "people_by_name", "adults", "total"],
    ),
}


@pytest.mark.parametrize("language", SNIPPETS)
def test_what_a_file_defines_is_found_in_every_language(language: str) -> None:
    text, symbol, defined = SNIPPETS[language]
    pieces = cut(text, language)
    assert len(pieces) == 1
    assert pieces[0].symbol == symbol
    assert sorted(pieces[0].defines) == sorted(set(defined))


@pytest.mark.parametrize("language", SNIPPETS)
def test_cut_finely_each_name_is_defined_exactly_where_it_stands(language: str) -> None:
    text, _, defined = SNIPPETS[language]
    pieces = cut(text, language, limit=24, target=12)
    assert len(pieces) > 1
    for piece in pieces:
        assert piece.token_count <= 24
        for name in piece.defines:
            assert name in text[piece.start : piece.end]
    assert sorted({name for piece in pieces for name in piece.defines}) == sorted(set(defined))


@pytest.mark.parametrize("language", sorted(GRAMMARS))
def test_every_grammar_loads(language: str) -> None:
    assert syntax.parse("x", language) is not None


def symbols(text: str, language: str, *, limit: int = 30, target: int = 15) -> list[str]:
    return [piece.symbol for piece in cut(text, language, limit=limit, target=target)]


@pytest.mark.parametrize(
    ("language", "symbol"),
    [
        ("python", "Counter.total"),
        ("javascript", "Shop.open"),
        ("java", "Cart.size"),
        ("go", "Cart.Add"),
        ("go", "Stack.Push"),
        ("rust", "Cart.size"),
        ("cpp", "shop.Cart.count"),
        ("cpp", "Store.name"),
        ("csharp", "Shop.Cart.Size"),
        ("ruby", "Shop.Cart.build"),
        ("php", "Cart.size"),
        ("swift", "Cart.clear"),
        ("kotlin", "Cart.size"),
        ("scala", "Cart.build"),
        ("lua", "M.close"),
        ("typescript", "Geometry.area"),
    ],
)
def test_symbols_carry_the_name_of_what_encloses_or_owns_them(language: str, symbol: str) -> None:
    text = SNIPPETS[language][0]
    tree = syntax.parse(text, language)
    assert tree is not None
    assert symbol in [definition.symbol for definition in syntax.find_definitions(tree, language)]


def method(name: str, lines: int = 4) -> str:
    return f"    def {name}(self):\n" + "".join(
        f"        step_{i} = self.call({i}, {i})\n" for i in range(lines)
    )


def test_a_small_file_is_one_piece() -> None:
    text = "import os\n\ndef f():\n    return os\n"
    assert texts(text, cut(text, "python")) == [text.rstrip()]


def test_a_large_class_is_cut_between_its_methods_and_its_head_leads() -> None:
    text = 'class Store:\n    """Keeps things."""\n\n' + "\n".join(
        method(name, 8) for name in ("open", "close", "read")
    )
    pieces = cut(text, "python", limit=120, target=110)
    assert [piece.symbol for piece in pieces] == ["Store", "Store.close", "Store.read"]
    assert [piece.defines for piece in pieces] == [("Store", "open"), ("close",), ("read",)]
    assert texts(text, pieces)[0].startswith('class Store:\n    """Keeps things."""')
    assert texts(text, pieces)[1].startswith("    def close(self):")


def test_the_parts_of_a_method_too_long_for_one_piece_keep_its_symbol() -> None:
    text = "class Store:\n" + method("open", 40) + method("close", 2)
    pieces = cut(text, "python", limit=120, target=80)
    assert [piece.symbol for piece in pieces[:-1]] == ["Store"] + ["Store.open"] * (len(pieces) - 2)
    assert "close" in pieces[-1].defines


def test_a_syntax_unit_between_target_and_limit_stays_whole() -> None:
    text = "def a():\n" + "    x = f(1, 2)\n" * 12 + "\ndef b():\n" + "    y = g(3, 4)\n" * 12
    pieces = cut(text, "python", limit=120, target=60)
    assert [piece.symbol for piece in pieces] == ["a", "b"]


def test_small_neighbours_share_a_piece_but_two_large_definitions_do_not() -> None:
    small = "".join(f"def small_{i}():\n    return {i}\n\n" for i in range(6))
    large = "".join(f"def large_{i}():\n" + "    call(1, 2)\n" * 11 + "\n" for i in range(2))
    pieces = cut(small + large, "python", limit=200, target=160)
    assert [piece.defines for piece in pieces] == [
        (*(f"small_{i}" for i in range(6)), "large_0"),
        ("large_1",),
    ]


@pytest.mark.parametrize(
    ("language", "lead", "definition"),
    [
        ("python", "@cache\n@wraps(f)\n", "def work(x):\n    return x\n"),
        ("python", "# Does the work,\n# twice.\n", "def work(x):\n    return x\n"),
        ("rust", "/// Does the work.\n#[inline]\n", "fn work(x: i32) -> i32 { x }\n"),
        ("java", "/** Does the work. */\n@Deprecated\n", "class work { int x() { return 1; } }\n"),
        ("go", "// work does the work.\n", "func work(x int) int { return x }\n"),
        ("csharp", "/// <summary>Work.</summary>\n[Obsolete]\n", "class work { int x; }\n"),
        ("typescript", "/** Works. */\n@Injectable()\n", "class work { x = 1; }\n"),
        ("cpp", "// Works.\ntemplate <typename T>\n", "T work(T x) { return x; }\n"),
        ("php", "/** Works. */\n#[Pure]\n", "function work($x) { return $x; }\n"),
        ("kotlin", "/** Works. */\n@JvmStatic\n", "fun work(x: Int): Int { return x }\n"),
    ],
)
def test_comments_and_decorators_stay_with_the_definition_they_precede(
    language: str, lead: str, definition: str
) -> None:
    opening = "<?php\n" if language == "php" else ""
    fillers = [lead + re.sub(r"\bwork\b", f"work{i}", definition) for i in range(8)]
    text = opening + "\n".join(fillers)
    pieces = cut(text, language, limit=40, target=26)
    assert len(pieces) >= 4
    for part in texts(text, pieces):
        assert part.removeprefix("<?php\n").startswith(lead.split("\n")[0])
        assert part.count(lead.split("\n")[0]) == len(re.findall(r"\bwork\d", part))


def test_a_comment_parted_by_a_blank_line_may_stand_apart() -> None:
    text = "# " + "licence word " * 30 + "\n\ndef f():\n" + "    return g(1, 2)\n" * 10
    pieces = cut(text, "python", limit=100, target=70)
    assert texts(text, pieces)[1].startswith("def f")


def test_a_trailing_comment_stays_on_its_line() -> None:
    text = "".join(f"value_{i} = call({i})  # note {i}\n" for i in range(40))
    for part in texts(text, cut(text, "python", limit=60, target=40)):
        assert part.startswith("value_")
        assert re.search(r"# note \d+$", part)


def test_closing_braces_stay_with_what_they_close() -> None:
    body = "".join(f"  if (a{i}) {{\n    call({i}, {i});\n  }}\n" for i in range(30))
    text = "function long() {\n" + body + "}\n"
    for part in texts(text, cut(text, "javascript", limit=80, target=60)):
        assert not part.lstrip().startswith("}")


def test_brace_on_its_own_line_stays_with_its_signature() -> None:
    body = "".join(f"        Call({i}, {i});\n" for i in range(30))
    text = "class A\n{\n    void Run()\n    {\n" + body + "    }\n}\n"
    pieces = cut(text, "csharp", limit=80, target=60)
    assert texts(text, pieces)[0].startswith(
        "class A\n{\n    void Run()\n    {\n        Call(0, 0);"
    )
    assert {piece.symbol for piece in pieces[1:]} == {"A.Run"}


def test_html_and_css_are_cut_between_elements_and_rules() -> None:
    html = (
        "<html><body>\n"
        + "".join(f"<section>\n  <p>word {i} and more</p>\n</section>\n" for i in range(20))
        + "</body></html>\n"
    )
    for part in texts(html, cut(html, "html", limit=100, target=60))[1:]:
        assert part.lstrip().startswith(("<section>", "</body>"))
    css = "".join(f".name-{i} {{\n  color: red;\n  margin: 0;\n}}\n" for i in range(20))
    pieces = cut(css, "css", limit=60, target=40)
    assert all(part.startswith(".name") and part.endswith("}") for part in texts(css, pieces))
    assert all(not piece.symbol and not piece.defines for piece in pieces)


def test_offsets_are_characters_whatever_the_script() -> None:
    text = "# 漢字 é 🙂\nname = '🙂🙂'\n\n" + "".join(
        f"def größe_{i}():\n    return '漢字🙂 {i}'\n\n" for i in range(30)
    )
    pieces = cut(text, "python", limit=60, target=40)
    for piece, part in zip(pieces, texts(text, pieces), strict=True):
        assert part.startswith(("# 漢", "def größe_"))
        assert all(f"def {name}(" in part for name in piece.defines if name != "name")


def test_a_minified_line_is_cut_between_statements_within_the_limit() -> None:
    text = ";".join(f"function f{i}(a,b){{return a+b*{i}}}" for i in range(400))
    pieces = cut(text, "javascript", limit=100, target=70)
    assert all(piece.token_count <= 100 and piece.lines == (1, 1) for piece in pieces)
    assert all(part.startswith("function f") for part in texts(text, pieces))


def test_a_minified_megabyte_is_cut_in_seconds_with_few_counts() -> None:
    calls = 0

    def counted(text: str) -> int:
        nonlocal calls
        calls += 1
        return len(text) // 3 + 1

    text = (
        "var a=[" + ",".join(f"{{x:{i},f:function(){{return {i}}}}}" for i in range(30_000)) + "]"
    )
    pieces = chunk(text, language="javascript", kind=Kind.CODE, limit=512, count=counted)
    assert max(piece.token_count for piece in pieces) <= 512
    assert calls < 5 * len(pieces)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "(" * 10_000 + ")" * 10_000),
        ("javascript", "[" * 10_000 + "]" * 10_000),
        ("javascript", "{" * 10_000),
        ("c", "int f(){" + "if(a){" * 5_000 + "}" * 5_000 + "}"),
        ("html", "<div>\n" * 5_000 + "</div>\n" * 5_000),
        ("python", "".join(" " * i + "if x:\n" for i in range(300)) + " " * 300 + "pass"),
    ],
)
def test_deep_nesting_is_cut_without_recursion(language: str, text: str) -> None:
    before = sys.getrecursionlimit()
    pieces = cut(text, language, limit=100)
    assert all(piece.token_count <= 100 for piece in pieces)
    assert "".join("".join(texts(text, pieces)).split()) == "".join(text.split())
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("language", sorted(GRAMMARS))
def test_no_grammar_hangs_on_what_it_cannot_read(language: str) -> None:
    broken = "<a {{b:>c:d(e f)"  # the tsx grammar by itself never comes back from this
    for text in (
        broken,
        "".join(random.Random(7).choices("abc(){}[];:,.'\"\n \t=+-*/<>!@#$%^&", k=20_000)),
        "é🙂" * 20_000,
        "x " * 20_000,
    ):
        pieces = cut(text, language)
        assert "".join("".join(texts(text, pieces)).split()) == "".join(text.split())


def test_a_text_whose_parse_takes_too_much_memory_is_cut_by_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syntax, "_BLOCKS", 100_000)
    text = "int f() { return 0; }\n" + "a<" * 30_000
    monkeypatch.setattr(syntax, "_UNCLOSED_AT_MOST", len(text))
    pieces = cut(text, "cpp")
    assert not any(piece.symbol or piece.defines for piece in pieces)
    assert "".join("".join(texts(text, pieces)).split()) == "".join(text.split())


def test_a_statement_with_countless_unclosed_angle_brackets_is_not_parsed_but_many_shifts_are() -> (
    None
):
    assert syntax.parse("a<" * 20_000, "typescript") is None
    assert (
        syntax.parse(
            "enum A {\n" + "".join(f"  B{i} = 1 << 3,\n" for i in range(6_000)) + "}\n",
            "typescript",
        )
        is not None
    )


@pytest.mark.parametrize("language", ["python", "tsx"])
def test_a_text_whose_parse_takes_too_long_is_cut_by_lines(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "f(1)\n" * 4_000
    assert syntax.parse(text, language) is not None
    monkeypatch.setattr(syntax, "_SECONDS", 0.0)
    monkeypatch.setattr(syntax, "_SECONDS_PER_BYTE", 0.0)
    assert syntax.parse(text, language) is None
    assert cut(text, language) == cut(text, "text")


def test_a_missing_grammar_falls_back_to_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRAMMARS, "klingon", ("tree_sitter_klingon", "language"))
    text = "".join(f"proc p{i}\n  line one\n  line two\n\n" for i in range(20))
    pieces = cut(text, "klingon", limit=40, target=21)
    assert all(part.startswith("proc") for part in texts(text, pieces))


def test_a_failure_inside_a_grammar_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    (tmp_path / "tree_sitter_broken.py").write_text("import surely_not_there\n")  # type: ignore[attr-defined]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(GRAMMARS, "broken", ("tree_sitter_broken", "language"))
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        cut("x", "broken")


def test_several_threads_cut_at_once() -> None:
    text = "".join(f"def f{i}():\n    return {i}\n\n" for i in range(300))
    expected = cut(text, "python", limit=60)
    results: list[list[Piece]] = []
    threads = [
        threading.Thread(target=lambda: results.append(cut(text, "python", limit=60)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 6
