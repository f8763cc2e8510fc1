#!/usr/bin/env python3
"""Renders the templates *_family.jinja as transformers' apply_chat_template does, with Jinja alone:

    make_families.py        (needs the package jinja2)

Writes a NAME.jsonl beside each NAME.jinja. The templates have the constructs of those of known models; none is a copy.
strftime_now returns the text of `kwargs.strftime_now`.
"""

import json
import pathlib

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a <city> & \"more\"\nin é",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "City"}, "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"type": "string", "enum": ["C", "F"]}}}}}]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(arguments, **more):
    return {**more, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


CONVERSATIONS = [
    [message("user", " Hi\n")],
    [message("system", "Be brief. "), message("user", "# Two\nlines. Or more. #"), message("assistant", " Hello! ")],
    [message("user", "a"), message("assistant", "b"), message("user", "c"), message("assistant", "d"), message("user", "e")],
    [message("user", "a"), message("assistant", "<think>\nhm\n</think>\n\nyes"), message("user", "b"),
     message("assistant", "<think>x</think>no")],
    [message("user", "w?"), message("assistant", "", tool_calls=[call({"city": "Köln", "days": [3]}, id="abcdefghi")]),
     message("tool", "{\"t\": 7}", tool_call_id="abcdefghi"), message("assistant", "7 degrees")],
    [message("user", "w?"), message("assistant", "both", tool_calls=[call("{\"city\": \"X\"}", id="abcdefghi"),
                                                                     call({}, id="jklmnopqr")]),
     message("tool", "ok"), message("tool", "ok2")],
    [message("user", [{"type": "text", "text": " one "}, {"type": "text", "text": "two"}]), message("assistant", "three")],
    [message("assistant", "first")],
    [message("user", "a"), message("user", "b")],
    [],
]


def environment():
    def raise_exception(text):
        raise TemplateError(text)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    return result


def rows(template):
    for messages in CONVERSATIONS:
        for prompts, kwargs in ((False, {}), (True, {"tools": TOOLS, "enable_thinking": False}), (True, {"tools": None})):
            kwargs = {**kwargs, "strftime_now": "28 Feb 2025"}
            row = {"messages": messages, "add_generation_prompt": prompts, "kwargs": kwargs}
            functions = {"strftime_now": lambda form: "28 Feb 2025"}
            try:
                row["text"] = template.render(messages=messages, add_generation_prompt=prompts, bos_token="<s>",
                                              eos_token="</s>", **{**kwargs, **functions})
            except (TemplateError, TypeError) as error:
                row["error"] = f"{type(error).__name__}: {error}"
            yield row


def main():
    for path in sorted(pathlib.Path(__file__).parent.glob("*_family.jinja")):
        template = environment().from_string(path.read_text(encoding="utf-8"))
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows(template)]
        path.with_suffix(".jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
