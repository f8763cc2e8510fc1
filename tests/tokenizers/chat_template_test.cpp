#include "megatron/tokenizers/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {
using ::testing::HasSubstr;

std::string rendered(std::string_view source, const std::string& x = "null", const std::string& messages = "[]") {
  return ChatTemplate(source).render({.messages = messages, .variables = {{"x", x}}});
}

template <class E>
std::string error_of(std::string_view source, const std::string& x = "null") {
  try {
    return "no error: " + rendered(source, x);
  } catch (const E& error) {
    return error.what();
  }
}

// Expected: Jinja 3.1.6 with trim_blocks and lstrip_blocks.
TEST(ChatTemplate, WhiteSpaceAroundTagsIsJinjas) {
  EXPECT_EQ(rendered("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(rendered("a  {%- if true -%}  b  {%- endif %}  c"), "ab  c");
  EXPECT_EQ(rendered("a\n {%+ if true %}b{% endif +%}\nc"), "a\n b\nc");
  EXPECT_EQ(rendered("  {{ 1 }}\n  {# no #}\nx"), "  1\nx");
  EXPECT_EQ(rendered("{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}"), "}}1");
  EXPECT_EQ(rendered("a\r\nb\n\n"), "a\nb\n");
}

TEST(ChatTemplate, ExpressionsAreThoseOfJinja) {
  EXPECT_EQ(rendered("{{ 1 + 2 * 3 - 4 // 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}"), "6 -4 2 3.5");
  EXPECT_EQ(rendered("{{ 'a' ~ 1 ~ none ~ true ~ missing }}"), "a1NoneTrue");
  EXPECT_EQ(rendered("{{ [1, 'b', 2.0, {'k': none}] }}"), "[1, 'b', 2.0, {'k': None}]");
  EXPECT_EQ(rendered("{{ 'ab' 'c'[::-1] }} {{ 'héllo'[1:3] }} {{ [1,2,3][-2:] }} {{ [1,2,3,4][::2] }}"),
            "cba él [2, 3] [1, 3]");
  EXPECT_EQ(rendered("{{ 1 < 2 < 3 }} {{ 3 not in [1] }} {{ 'b' in 'abc' }} {{ not 1 == 2 }}"), "True True True True");
  EXPECT_EQ(rendered("{{ 'x' if false }}{{ 'y' if false else 'z' }}{{ none or 'o' }}{{ 0 and 1 }}"), "zo0");
  EXPECT_EQ(rendered("{{ ' a ' | trim | upper ~ '!' }} {{ -3 | abs }}"), "A! 3");
}

TEST(ChatTemplate, StatementsAreThoseOfJinja) {
  EXPECT_EQ(
      rendered("{% for a, b in x.items() %}{{ loop.index }}{{ a }}{{ b }}{{ '' if loop.last else ',' }}{% endfor %}",
               R"({"k": 1, "l": 2})"),
      "1k1,2l2");
  EXPECT_EQ(rendered("{% for i in range(5) if i is odd %}{{ i }}{% else %}none{% endfor %}"), "13");
  EXPECT_EQ(
      rendered("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}"
               "{% endfor %}"),
      "02");
  EXPECT_EQ(rendered("{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{% endfor %}{{ a }}"), "1")
      << "loops have a scope";
  EXPECT_EQ(rendered("{% set n = namespace(a=1) %}{% for i in [5] %}{% set n.a = i %}{% endfor %}{{ n.a }}"), "5");
  EXPECT_EQ(rendered("{% macro m(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}"), "[1d][12]");
  EXPECT_EQ(rendered("{% set t %}a{{ 1 }}{% endset %}{{ t | length }}"), "2");
}

TEST(ChatTemplate, FiltersAndMethodsAreThoseOfJinjaAndPython) {
  EXPECT_EQ(rendered("{{ x | tojson }}", R"({"b": [1, 2.5, "é\n<'>"], "a": null})"),
            R"({"b": [1, 2.5, "é\n<'>"], "a": null})");
  EXPECT_EQ(rendered("{{ x | tojson(indent=1) }}", R"({"a": [1], "b": []})"), "{\n \"a\": [\n  1\n ],\n \"b\": []\n}");
  EXPECT_EQ(rendered("{{ x | map(attribute='a.b') | join('-') }}", R"([{"a": {"b": 1}}, {"a": {"b": 2}}])"), "1-2");
  EXPECT_EQ(rendered("{{ x | selectattr('r', 'equalto', 'u') | list | length }}", R"([{"r": "u"}, {"r": "v"}])"), "1");
  EXPECT_EQ(rendered("{{ ['b', 'A', 'c'] | sort | join }} {{ missing | default('d') }} {{ '' | d('e', true) }}"),
            "Abc d e");
  EXPECT_EQ(rendered("{{ 'a,b,c'.split(',', 1)[-1] }}{{ ' a b '.split() }}{{ 'xxaxx'.strip('x') }}"), "b,c['a', 'b']a");
  EXPECT_EQ(rendered("{{ x.get('no', 1) }}{{ x.items() | list }}{{ x['items'] }}", R"({"items": 2})"),
            "1[['items', 2]]2");
}

// Expected: transformers 5.23.
TEST(ChatTemplate, MessagesLoseNullsAndTheReasoningHasAllItsNames) {
  const std::string keys =
      "{% for m in messages %}{% for k, v in m.items() %}[{{ k }}={{ v }}]{% endfor %}{% endfor %}";
  EXPECT_EQ(rendered(keys, "null", R"([{"role": "a", "content": null, "c": [{"x": null}], "reasoning": "r"}])"),
            "[thinking=r][role=a][c=[{'x': None}]][reasoning=r][reasoning_content=r]");
  EXPECT_EQ(rendered("{{ x is defined }}{{ x is none }}"), "TrueTrue");
}

TEST(ChatTemplate, WhatIsNotSupportedIsRefusedByNameWhenItIsRead) {
  const auto refused = [](std::string_view source) {
    try {
      ChatTemplate{source};
    } catch (const NotSupported& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused("\n{% include 'x' %}"), HasSubstr("line 2 of the chat template: the statement 'include'"));
  EXPECT_THAT(refused("{{ x | xmlattr }}"), HasSubstr("the filter 'xmlattr'"));
  EXPECT_THAT(refused("{{ x is sameas 1 }}"), HasSubstr("the test 'sameas'"));
  EXPECT_THAT(refused("{{ x ? 1 }}"), HasSubstr("the character '?'"));
  EXPECT_THAT(refused("{{ '\\x41' }}"), HasSubstr("the escape \\x"));
}

// Expected: Jinja 3.1.6 with transformers' tojson.
TEST(ChatTemplate, FiltersAndMethodsOfTextsAreThoseOfJinja) {
  EXPECT_EQ(rendered("{{ 'ab-c d(e' | title }}|{{ \"it's a test\".title() }}"), "Ab-C D(E|It'S A Test");
  EXPECT_EQ(rendered("{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}"), "a\n  b\n\n  c|  a\n  b");
  EXPECT_EQ(rendered("{{ 'a\\n\\nb\\n' | indent(width=3, first=true, blank=true) }}|{{ 'x\\ny' | indent('> ') }}"),
            "   a\n   \n   b\n   |x\n> y");
  EXPECT_EQ(rendered("{{ 'a\\nb\\r\\nc\\n'.splitlines() }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a,b'.rsplit(',') }}"),
            "['a', 'b', 'c']['a,b', 'c']['a', 'b']");
  EXPECT_EQ(rendered("{{ 'éab'.find('b') }}{{ 'ab'.find('z') }}{{ 'abcb'.rfind('b') }}"), "2-13");
  EXPECT_EQ(rendered("{{ 'xyx'.removeprefix('x') }}{{ 'xyx'.removesuffix('x') }}{{ 'ab' * 2 }}{{ 'ab' * -1 }}"),
            "yxxyabab");
  EXPECT_EQ(rendered("{{ 'abca'.replace('a', 'b', 1) }}{{ 'aba' | replace('a', 'c', 1) }}"), "bbcacba");
  EXPECT_EQ(rendered("{{ 'aa'.replace('a', 'b', x) }}", "-9223372036854775808"), "bb");
  EXPECT_EQ(rendered("{{ x | tojson(true) }}", "\"~\x7f\""), R"("~\u007f")");
  EXPECT_EQ(
      rendered("{{ x | tojson(separators=(',', ':')) }}{{ x | tojson(sort_keys=true) }}", R"({"b": [1, 2], "a": 3})"),
      R"({"b":[1,2],"a":3}{"a": 3, "b": [1, 2]})");
  EXPECT_EQ(rendered("{{ x | tojson(true) }}{{ x | tojson(false, 1) }}", R"(["é😀"])"), R"(["\u00e9\ud83d\ude00"])"
                                                                                       "[\n \"é😀\"\n]");
}

TEST(ChatTemplate, FunctionsAreThoseOfJinja) {
  EXPECT_EQ(rendered("{{ dict({'k': 2}, z=3, k=4) }}{{ dict([['a', 1]]) }}"), "{'k': 4, 'z': 3}{'a': 1}");
  EXPECT_EQ(rendered("{{ range(5, 0, -2) | list }}{{ range(0, 10, 3) | list }}{{ range(3, 3, -1) | list }}"),
            "[5, 3, 1][0, 3, 6, 9][]");
  EXPECT_EQ(rendered("{{ range(x, 9223372036854775807, 9223372036854775807) | list }}", "-9223372036854775808"),
            "[-9223372036854775808, -1, 9223372036854775806]");
  EXPECT_THAT(error_of<DataError>("{{ range(0, 1, 0) }}"), HasSubstr("a step of 0"));
  EXPECT_EQ(rendered("{{ x.0.a }}{{ x.1 is defined }}", R"([{"a": 7}])"), "7False");
}

// A clock would change the samples of a run from one day to the next.
TEST(ChatTemplate, TheDateComesFromTheConversation) {
  const ChatTemplate chat_template("{{ strftime_now('%d %b %Y') if strftime_now is defined else 'no date' }}");
  EXPECT_EQ(chat_template.render({.messages = "[]"}), "no date");
  EXPECT_EQ(chat_template.render({.messages = "[]", .variables = {{"strftime_now", "\"26 Jul 2024\""}}}),
            "26 Jul 2024");
}

TEST(ChatTemplate, MistakesAreNamedWithTheirLine) {
  EXPECT_THAT(error_of<DataError>("\n{% if x %}"), HasSubstr("endif"));
  EXPECT_THAT(error_of<DataError>("{{ x "), HasSubstr("line 1 of the chat template: a tag does not end"));
  EXPECT_THAT(error_of<DataError>("{{ }}"), HasSubstr("expected a value"));
  EXPECT_THAT(error_of<DataError>("{{ missing.a }}"), HasSubstr("an undefined value has no 'a'"));
  EXPECT_THAT(error_of<DataError>("{{ 'a' + 1 }}"), HasSubstr("a string + a number is not defined"));
  EXPECT_THAT(error_of<DataError>("{{ raise_exception('no') }}"), HasSubstr("refuses the conversation: no"));
  EXPECT_THAT(error_of<DataError>("{{ strftime_now('%d') }}"), HasSubstr("Name the date in each conversation"));
  EXPECT_THAT(error_of<DataError>("{{ 1 // 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(error_of<DataError>("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}"),
              HasSubstr("nested too deep"));
  EXPECT_THAT(error_of<DataError>("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("200 times deep"));
}

TEST(ChatTemplate, ValuesOfAWrongKindOrSizeAreErrors) {
  EXPECT_THAT(error_of<DataError>("{{ [x] | tojson(indent=missing) }}"), HasSubstr("needs an integer"));
  EXPECT_THAT(error_of<DataError>("{{ 'a'.split('a', 'b') }}"), HasSubstr("needs an integer"));
  EXPECT_THAT(error_of<DataError>("{{ [{}] | map(attribute=[]) }}"), HasSubstr("needs a string"));
  EXPECT_THAT(error_of<NotSupported>("{{ [x] | tojson(indent=1000000000) }}"), HasSubstr("indent"));
  EXPECT_THAT(error_of<NotSupported>("{{ " + std::string(400, '9') + ".0 }}"), HasSubstr("out of range"));
  EXPECT_THAT(error_of<DataError>("{{ x | int }}", "1e300"), HasSubstr("63 bits"));
  EXPECT_THAT(error_of<DataError>("{{ -x }}", "-9223372036854775808"), HasSubstr("63 bits"));
  EXPECT_THAT(error_of<DataError>("{{ x | abs }}", "-9223372036854775808"), HasSubstr("63 bits"));
  EXPECT_THAT(error_of<DataError>("{{ range(x, 9223372036854775807) }}", "-9223372036854775808"),
              HasSubstr("more than 100000"));
  EXPECT_EQ(rendered("{{ ['a'] | map(filter='upper') | list }}"), "['A']");
  EXPECT_EQ(rendered("{{ 'abc'[1::9223372036854775807] }}"), "b");
  EXPECT_EQ(rendered("{{ x is divisibleby(-1) }}", "-9223372036854775808"), "True");
}

std::string repeated(int times, const std::string& text) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(ChatTemplate, ThatWouldExhaustTimeMemoryOrTheStackIsAnError) {
  const std::string begin = "{% set n = namespace(x='ab') %}{% for i in range(1000) %}", end = "{% endfor %}";
  EXPECT_THAT(error_of<DataError>(repeated(3, "{% for i in range(99999) %}") + repeated(3, end)),
              HasSubstr("too many steps"));
  EXPECT_THAT(error_of<DataError>(begin + "{% set n.x = n.x ~ n.x %}" + end), HasSubstr("bytes of text"));
  EXPECT_THAT(error_of<DataError>(begin + "{% set n.x = [n.x, n.x] %}" + end), HasSubstr("values"));
  EXPECT_THAT(error_of<DataError>(begin + "{% set n.x = [n.x] %}" + end), HasSubstr("nested more than"));
  EXPECT_THAT(error_of<DataError>(begin + "{% set n.x = n %}" + end), HasSubstr("cannot hold a namespace"));
  EXPECT_THAT(error_of<DataError>(begin + "{% set n.x = [n] %}" + end), HasSubstr("puts a namespace"));
  EXPECT_THAT(error_of<DataError>(begin + "{% if i < 20 %}{% set n.x = n.x ~ n.x %}{% endif %}" + end +
                                  "{{ (n.x | list) | join(n.x) }}"),
              HasSubstr("bytes"));
  EXPECT_THAT(error_of<DataError>("{{ " + repeated(5000, "not ") + "1 }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of<DataError>("{{ " + repeated(5000, "-") + "1 }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of<DataError>("{{ 1" + repeated(5000, "+1") + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of<DataError>("{{ x" + repeated(5000, ".x") + " }}"), HasSubstr("nested too deep"));
  EXPECT_THAT(error_of<DataError>(repeated(5000, "{% if x %}") + repeated(5000, "{% endif %}")), HasSubstr("blocks"));
  EXPECT_THAT(error_of<DataError>("{% if x %}" + repeated(5000, "{% elif x %}") + "{% endif %}"), HasSubstr("blocks"));
  EXPECT_THAT(error_of<DataError>("{% macro m() %}{{ " + repeated(100, "[") + "m()" + repeated(100, "]") +
                                  " }}{% endmacro %}{{ m() }}"),
              HasSubstr("levels"));
}

}  // namespace
}  // namespace megatron
