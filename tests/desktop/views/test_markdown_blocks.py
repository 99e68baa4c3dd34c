from __future__ import annotations

import pytest

from strata_desktop.views.code_colors import token_spans
from strata_desktop.views.markdown_blocks import (
    Block,
    BlockParser,
    CodeBlock,
    QuoteBlock,
    RuleBlock,
    TextBlock,
)

ANSWER = """# Title

Some *text* with `code` and a [link][1].

1. First
   ```bash
   run  this
   ```
   then
2. Second
   - inner

> quoted
>
> ```c
> int x;
> ```

| a | b |
|---|--:|
| 1 | 2 |

***

```python
x = 1

y = 2
```

last | not a table
- [x] done

[1]: https://example.org
"""


def parse(text: str) -> list[Block]:
    return BlockParser().update(text)


def test_kinds_of_blocks() -> None:
    kinds = [type(block).__name__ for block in parse(ANSWER)]
    assert kinds == [
        "TextBlock",
        "TextBlock",
        "TextBlock",
        "CodeBlock",
        "TextBlock",
        "TextBlock",
        "TextBlock",
        "QuoteBlock",
        "TextBlock",
        "RuleBlock",
        "CodeBlock",
        "TextBlock",
        "TextBlock",
    ]


def test_code_keeps_its_text_and_language() -> None:
    assert parse("```python  title=x\na\n\n  b\n```") == [CodeBlock("a\n\n  b", "python")]
    assert parse("~~~\nno end") == [CodeBlock("no end", "")]
    assert parse("    indented\n    code") == [CodeBlock("indented\ncode", "")]


def test_code_in_a_list_gets_a_block_of_its_own() -> None:
    blocks = parse("3. Do\n   ```sh\n   ls\n   ```\n4. Then\n")
    assert blocks == [
        TextBlock('<ol start="3"><li>Do</li></ol>'),
        CodeBlock("ls", "sh", indent=1),
        TextBlock('<ol start="4"><li>Then</li></ol>'),
    ]


def test_quote_holds_blocks() -> None:
    (quote,) = parse("> a\n>\n> ```\n> b\n> ```")
    assert quote == QuoteBlock((TextBlock("<p>a</p>"), CodeBlock("b", "")))


def test_html_and_images_do_nothing() -> None:
    (block,) = parse('<script>x</script> ![pic](http://h/p.png) <img src="file:///etc/passwd">')
    assert isinstance(block, TextBlock)
    assert "<script" not in block.html
    assert "<img" not in block.html
    assert "&lt;script" in block.html
    assert '<a href="http://h/p.png">[pic]</a>' in block.html


def test_dangerous_link_is_no_link() -> None:
    (block,) = parse("[x](javascript:alert)")
    assert isinstance(block, TextBlock)
    assert "href" not in block.html


def test_rule_and_tasks() -> None:
    rule, tasks = parse("---\n\n- [ ] a\n- [x] b")
    assert rule == RuleBlock()
    assert isinstance(tasks, TextBlock)
    assert "☐ a" in tasks.html
    assert "☑ b" in tasks.html


@pytest.mark.parametrize("step", [1, 3, 17])
def test_a_growing_text_ends_like_the_whole(step: int) -> None:
    parser = BlockParser()
    for end in range(0, len(ANSWER) + step, step):
        parser.update(ANSWER[:end], is_final=False)
        assert [type(b) for b in parser.blocks] == [type(b) for b in parse_unfinished(end)]
    assert parser.update(ANSWER) == parse(ANSWER)


def parse_unfinished(end: int) -> list[Block]:
    return BlockParser().update(ANSWER[:end], is_final=False)


def test_settled_blocks_stay_the_same_objects() -> None:
    parser = BlockParser()
    first = list(parser.update("a\n\n```\nb\n```\n\nc", is_final=False))
    then = parser.update("a\n\n```\nb\n```\n\nc more\n\nd", is_final=False)
    assert then[0] is first[0]
    assert then[1] is first[1]


def test_replaced_text_is_parsed_anew() -> None:
    parser = BlockParser()
    parser.update("a\n\nb\n\nc", is_final=False)
    assert parser.update("other", is_final=False) == [TextBlock("<p>other</p>")]


def test_spans_count_as_qt_does() -> None:
    lines = token_spans('x = "😀"  # é\nreturn 1', "python")
    assert lines[0] == ((4, 1, "string"), (5, 2, "string"), (7, 1, "string"), (10, 3, "comment"))
    assert [kind for _, _, kind in lines[1]] == ["keyword", "number"]


def test_unknown_language_has_no_colours() -> None:
    assert token_spans("a\nb", "nonsense") == [(), ()]
    assert token_spans("a", "") == [()]
