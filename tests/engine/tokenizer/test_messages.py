"""Conversations as clients send them: what is tidied, what is refused, and gentler forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequestError
from engine.tokenizer.messages import forms, normalize

USER = {"role": "user", "content": "hi"}


def call(arguments: Any = '{"city":"Oslo"}', call_id: str | None = "call_1") -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


# K001, K002: assistant turns with calls and no, null or empty content


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_calls_without_content_are_one_thing(content: dict[str, Any]) -> None:
    turn = {"role": "assistant", "tool_calls": [call()], **content}
    answer = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "4C"}]}
    assert normalize([USER, turn, answer]) == [
        USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
                }
            ],
        },
        {"role": "tool", "content": "4C", "tool_call_id": "call_1", "name": "weather"},
    ]


def test_null_calls_are_no_calls() -> None:
    turn = {"role": "assistant", "content": "yes", "tool_calls": None, "refusal": None}
    assert normalize([USER, turn])[1] == {"role": "assistant", "content": "yes"}


# K014: developer role


def test_developer_is_system_unless_kept() -> None:
    messages = [{"role": "developer", "content": "rhyme"}, USER]
    assert normalize(messages)[0]["role"] == "system"
    assert normalize(messages, keeps_developer=True)[0]["role"] == "developer"


# K017, K019: empty turns and text parts


@pytest.mark.parametrize("content", ["", None, [], " ", "\n", [{"type": "text", "text": ""}]])
def test_blank_answers_are_left_out(content: Any) -> None:
    assert normalize([USER, {"role": "assistant", "content": content}]) == [USER]
    middle = [USER, {"role": "assistant", "content": content}, USER]
    assert normalize(middle) == [USER, USER]


def test_parts_are_joined_in_order() -> None:
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "S"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, "b", {"text": "c"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "d"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "e"}]},
    ]
    assert [turn["content"] for turn in normalize(messages)] == ["S", "abc", "d", "e"]


# K020: null ids


def test_null_ids_are_paired_by_order() -> None:
    two = [call(call_id=None), call(call_id=None)]
    two[1]["function"]["name"] = "time"
    messages = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": two},
        {"role": "tool", "tool_call_id": None, "content": "4C"},
        {"role": "tool", "content": "noon"},
    ]
    _, turn, first, second = normalize(messages)
    ids = [one["id"] for one in turn["tool_calls"]]
    assert all(ids)
    assert ids[0] != ids[1]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert [first["name"], second["name"]] == ["weather", "time"]


def test_named_ids_find_their_call_in_any_order() -> None:
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [call(call_id="x"), call(call_id="y")]},
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "tool", "tool_call_id": "z", "content": "?"},
    ]
    assert [turn["tool_call_id"] for turn in normalize(messages)[2:]] == ["y", "x", "z"]


def test_legacy_function_calls_are_tool_calls() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": call()["function"]},
        {"role": "function", "name": "weather", "content": "4C"},
    ]
    _, turn, answer = normalize(messages)
    assert turn["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    assert (answer["role"], answer["tool_call_id"]) == ("tool", turn["tool_calls"][0]["id"])


# K023: broken argument JSON


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("{", "{"),
        ('{"a":1}{"b":2}', '{"a":1}{"b":2}'),
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("[1]", "[1]"),
        ("[" * 100_000, "[" * 100_000),
        ({"a": [1]}, {"a": [1]}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_arguments(arguments: Any, wanted: Any) -> None:
    turn = normalize([USER, {"role": "assistant", "tool_calls": [call(arguments)]}])[1]
    assert turn["tool_calls"][0]["function"]["arguments"] == wanted


# Refusals


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ({"role": "user"}, "messages"),
        ([{"role": "assistant", "content": ""}], "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([USER, {"role": "robot", "content": "x"}], "messages[1].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [5]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "odd"}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
    ],
)
def test_malformed_messages_name_the_place(messages: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        normalize(messages)
    assert caught.value.param == param


@pytest.mark.parametrize("kind", ["image_url", "input_image", "input_audio", "file"])
def test_other_inputs_are_refused(kind: str) -> None:
    content = [{"type": "text", "text": "see"}, {"type": kind, kind: {"url": "data:,"}}]
    with pytest.raises(InvalidRequestError, match="The model has no") as caught:
        normalize([{"role": "user", "content": content}])
    assert caught.value.param == "messages[0].content[1]"


odd_values = st.sampled_from(
    [
        None,
        "",
        " ",
        "text \ud800",
        5,
        True,
        [],
        ["a", None],
        [{"type": "text", "text": "a"}],
        [{"type": "text", "text": None}],
        [{"text": 5}],
        {"type": "text", "text": "b"},
        {},
        [{}],
        [{"id": None, "function": {"name": "f", "arguments": "{"}}],
        [{"id": "", "function": {"name": "f", "arguments": {"a": "\udfff"}}}],
        [{"id": 3, "function": {"name": "", "arguments": [1]}}],
        [{"id": "x", "function": "f"}],
    ]
)
some_messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "x", 1])},
        optional={
            "content": odd_values,
            "tool_calls": odd_values,
            "function_call": odd_values,
            "tool_call_id": odd_values,
            "name": odd_values,
            "reasoning_content": odd_values,
        },
    ),
    max_size=4,
)


@given(messages=some_messages)
def test_anything_is_tidied_or_refused(messages: list[dict[str, Any]]) -> None:
    before = json.dumps(messages)
    try:
        tidy = normalize(messages)
    except InvalidRequestError:
        return
    assert normalize(tidy) == tidy, "doing it twice changes nothing"
    assert json.dumps(messages) == before, "the request is left as it was"
    assert all(isinstance(turn["content"], str) for turn in tidy)


# K016: gentler forms


def test_forms_merge_then_fold() -> None:
    turns = normalize(
        [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": "c"},
            {"role": "system", "content": "late"},
            {"role": "user", "content": "d"},
        ]
    )
    told = [[(turn["role"][0], turn["content"]) for turn in form] for form in forms(turns)]
    assert told[1:] == [
        [("s", "S"), ("u", "a\n\nb"), ("a", "c"), ("s", "late"), ("u", "d")],
        [("s", "S"), ("u", "a\n\nb"), ("a", "c"), ("u", "late\n\nd")],
        [("u", "S\n\na\n\nb"), ("a", "c"), ("u", "late\n\nd")],
    ]


def test_a_plain_conversation_has_one_form() -> None:
    assert list(forms([USER])) == [[USER]]


def test_system_alone_becomes_the_user_turn() -> None:
    *_, last = forms([{"role": "system", "content": "S"}])
    assert last == [{"role": "user", "content": "S"}]
