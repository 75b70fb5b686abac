//! Tests that no filter, test, function or method of templates exceeds its fuel.

use super::{ChatTemplate, Message};
use std::collections::BTreeSet;

/// A long text that is cheap to create, and a list that refers to it many times without a copy.
const LONG: &str =
    "{% set s = 'a' * 1000000 %}{% set many = range(9999) | map(attribute='x', default=s) %}";

/// Filters, tests and functions with an expression that must terminate, successfully or out of
/// fuel. `many` and `s` are defined above. Aliases are listed under both names.
const USES: [(&str, &str); 110] = [
    // Filters.
    ("abs", "-1|abs"),
    ("attr", "{}|attr(many)"),
    ("batch", "[1]|batch(999999999999, s)|list"),
    ("bool", "many|bool"),
    ("capitalize", "many|capitalize"),
    ("count", "many|count"),
    ("d", "x|d(many)"),
    ("default", "x|default(many)"),
    ("dictsort", "{s: many}|dictsort"),
    ("e", "many|e"),
    ("escape", "('<' * 1000000)|escape|escape|escape|escape"),
    ("first", "many|first"),
    ("float", "many|float(many)"),
    ("format", "('%s' * 10000)|format(s)"),
    ("groupby", "many|groupby('x', default=many)"),
    ("indent", "('\\n' * 100000)|indent(1000000)"),
    ("int", "many|int(many)"),
    ("items", "{s: many}|items|list"),
    ("join", "many|join(s)"),
    ("last", "many|last"),
    ("length", "many|length"),
    ("lines", "('\\n' * 100000)|lines|map('replace', '', s)"),
    ("list", "many|list|upper"),
    ("lower", "many|lower"),
    ("map", "many|map('replace', 'a', s)|list"),
    ("max", "many|max"),
    ("min", "many|min"),
    ("pprint", "many|pprint"),
    ("reject", "many|reject('in', s)|list"),
    ("rejectattr", "many|rejectattr('x', 'in', s)|list"),
    ("replace", "s|replace('a', s)"),
    ("reverse", "many|reverse|upper"),
    ("round", "1|round(999999999)"),
    ("safe", "many|safe"),
    ("select", "many|select('in', s)|list|upper"),
    ("selectattr", "many|selectattr('x', 'in', s)|list"),
    ("slice", "[1]|slice(999999999999, s)|list"),
    ("sort", "many|sort|upper"),
    ("split", "s|split('')|map('replace', 'a', s)"),
    ("string", "many|string"),
    ("sum", "many|sum(start='')"),
    ("title", "many|title"),
    ("tojson", "many|tojson"),
    ("trim", "many|trim(many)"),
    ("unique", "many|unique|list|upper"),
    ("upper", "many|upper"),
    // Tests.
    ("!=", "1 if many != many"),
    ("<", "1 if many < many"),
    ("<=", "1 if many <= many"),
    ("==", "1 if many == many"),
    (">", "1 if many > many"),
    (">=", "1 if many >= many"),
    ("boolean", "many is boolean"),
    ("defined", "many is defined"),
    ("divisibleby", "9 is divisibleby(3)"),
    ("endingwith", "many is endingwith(many)"),
    ("eq", "many is eq(many)"),
    ("equalto", "many is equalto(many)"),
    ("even", "2 is even"),
    ("false", "many is false"),
    ("filter", "s is filter"),
    ("ge", "many is ge(many)"),
    ("greaterthan", "many is greaterthan(many)"),
    ("gt", "many is gt(many)"),
    ("in", "many in 'abc'"),
    ("int", "many is int"),
    ("integer", "many is integer"),
    ("float", "many is float"),
    ("iterable", "many is iterable"),
    ("le", "many is le(many)"),
    ("lessthan", "many is lessthan(many)"),
    ("lower", "s is lower"),
    ("lt", "many is lt(many)"),
    ("mapping", "many is mapping"),
    ("ne", "many is ne(many)"),
    ("none", "many is none"),
    ("number", "many is number"),
    ("odd", "2 is odd"),
    ("safe", "many is safe"),
    ("escaped", "many is escaped"),
    ("sameas", "many is sameas(many)"),
    ("sequence", "many is sequence"),
    ("startingwith", "many is startingwith(many)"),
    ("string", "many is string"),
    ("test", "s is test"),
    ("true", "many is true"),
    ("undefined", "many is undefined"),
    ("upper", "s is upper"),
    // Functions.
    ("cycler", "cycler(many, many).next()"),
    ("dict", "dict(a=many, b=many)|tojson"),
    ("joiner", "joiner(many)() ~ joiner(many)()"),
    ("namespace", "namespace(a=many)"),
    ("raise_exception", "raise_exception(many)"),
    ("range", "range(999999999999)"),
    ("strftime_now", "strftime_now('%c' * 1000000)"),
    // Operators.
    ("*", "([s] * 10000)|upper"),
    ("*", "([s, s] * 10000 * 10000)|length"),
    ("*", "(([s] * 10000) in 'abc')"),
    ("*", "'b' * 999999999999"),
    ("*", "((s,) * 99999)|upper"),
    ("*", "(1 + 1) * ([s] * 10000) ~ ''"),
    ("+", "(many + many + many)|upper"),
    ("~", "many ~ many"),
    ("not in", "[many] not in 'abc'"),
    ("in", "[s, s, s, s, s] * 9999 in 'abc'"),
    ("[]", "[many, many]|upper"),
    ("{}", "{'a': many, 'b': many}|upper"),
    ("set", "''.join(many)"),
    ("slices", "many[1:][::2]|upper"),
    ("**", "9 ** 999999"),
];

/// Methods of strings, lists and maps.
const METHODS: [&str; 15] = [
    "('a' * 100000).replace('a', 'b' * 30000000)",
    "('a' * 100000).replace('', 'b' * 300000)",
    "('a' * 100000).replace('a', 'b' * 300000, 90000)",
    "('a' * 100000).replace('a', 'b' * 300000, -1)",
    "s.join(many)",
    "s.join(s)",
    "('{0}' * 100000).format(s)",
    "s.split('a')|join(s)",
    "s.split('', many)",
    "s.strip(many)",
    "s.startswith(many)",
    "s.count(many)",
    "many.count(s)",
    "{'a': many}.get(many, many)",
    "{s: many}.items()|list|upper",
];

fn render(source: &str) -> Result<String, crate::Error> {
    ChatTemplate::new(source, None, None)?.render(&[Message::new("user", "x")], true)
}

/// Parses the names in a list of the environment's debug output.
fn names(shown: &str, list: &str) -> BTreeSet<String> {
    let (_, rest) = shown.split_once(&format!(" {list}: ")).unwrap();
    let close = if rest.starts_with('[') { "], " } else { "}, " };
    let (names, _) = rest.split_once(close).unwrap();
    names.split('"').skip(1).step_by(2).map(String::from).collect()
}

#[test]
fn growth_consumes_fuel() {
    let template = ChatTemplate::chatml();
    let shown = format!("{:?}", template.environment);
    let known: BTreeSet<&str> = USES.iter().map(|(name, _)| *name).collect();
    for list in ["filters", "tests", "globals"] {
        let names = names(&shown, list);
        assert!(names.len() > 5, "{list}: {shown}");
        let own = [super::CHARGE_FILTER, super::KEEP_FILTER];
        for name in names.iter().filter(|name| !own.contains(&name.as_str())) {
            assert!(known.contains(name.as_str()), "{list}: '{name}' is not tried");
        }
    }
    let uses = USES.iter().map(|(_, expression)| *expression).chain(METHODS);
    // Most expressions already fail when the list is created. Shorter variants reach the expression
    // itself.
    let few = LONG.replace("9999", "3").replace("1000000", "100000");
    for expression in uses {
        for long in [LONG, &few, "{% set s = 'a' * 1000000 %}"] {
            let source = format!("{long}{{{{ {expression} }}}}");
            let length = render(&source).map_or(0, |text| text.len());
            assert!(length < 16 << 20, "{source}: {length}");
        }
    }
}

/// A list that refers to a long text many times costs more than the text.
#[test]
fn lists_are_charged_by_their_contents() {
    for make in [
        "[s] * 10000",
        "1 + [s] * 10000",
        "[s] + [s] + [s] + [s]",
        "range(9999) | map(attribute='x', default=s)",
        "[s, s, s, s]",
        "dict(a=[s, s], b=[s, s])",
        "[[s, s], [s, s]]",
    ] {
        let source = format!("{{% set s = 'a' * 1000000 %}}{{% set x = {make} %}}");
        let error = render(&source).unwrap_err().to_string();
        assert!(error.contains("fuel") || make.starts_with('1'), "{make}: {error}");
    }
    // Expressions of real templates are unaffected.
    for (expression, expected) in [
        ("messages[0].role + ': ' + messages[0].content", "user: x"),
        ("messages[0].role + messages[0].content ~ 1 + 2 * 3", ""),
        ("1 + 2 * 3 ~ 4", ""),
        ("(messages[1:] + [1, 2])|length", "2"),
        ("([0] * 3)|join(',')", "0,0,0"),
        ("-1 + 2 - 3 * 4", "-11"),
        ("'a' + 'b' * 2 in 'xabb'", "True"),
        ("'a' not in ['b'] + ['a']", "False"),
        ("1 if 'a' * 2 == 'a' + 'a' else 2", "1"),
        ("x.y if x is defined and 1 + 1 in [2] else 3 * 3", "9"),
        ("(1, 2) + (3,)", "(1, 2, 3)"),
        ("['a'][0] + ['b'][0].upper()", "aB"),
        ("'abc'.removeprefix('a').replace('b', 'xx', 1)|upper", "XXC"),
        ("['a', 1]|map('string')|join('+')", "a+1"),
        ("[1, 2]|sum(start=3)", "6"),
        ("[1, 2]|sum", "3"),
    ] {
        let written = render(&format!("{{{{ {expression} }}}}")).unwrap_or_default();
        assert_eq!(written, expected, "{expression}");
    }
    assert!(render("{{ 'a'.center(9) }}").is_err() && render("{{ debug() }}").is_err());
}

/// A namespace that contained itself would be printed, compared or escaped without end.
#[test]
fn namespaces_cannot_contain_themselves() {
    for assign in [
        "{% set ns.a = ns %}",
        "{% set ns.a = [ns] %}",
        "{% set ns.a = {'x': [1, ns]} %}",
        "{% set ns.a = (1, ns) %}",
        "{% set ns.a, ns.b = ns, 1 %}",
        "{% set ns.a = {(1, ns): 2} %}",
        "{#} {{ ' #}{% set ns.a = ns %}",
        "{% raw %}{% endraw x %}{{ ' {% endraw %}{% set ns.a = ns %}",
        "{% set ns.a = cycler(ns) %}",
        "{% set ns.a = namespace(x=ns) %}",
        "{% set ns.a|default(ns, true) %}{% endset %}",
        "{% for x in [1, ns] %}{% set ns.a = loop %}{% endfor %}",
        "{% macro m() %}{{ ns }}{% endmacro %}{% set ns.a = m %}",
        "{% set ns.a = [1, ns] + [2] %}",
        "{% set ns.a = dict(b=ns) %}",
    ] {
        let source = format!("{{% set ns = namespace(b=1) %}}{assign}{{{{ ns|upper }}}}");
        let error = render(&source).unwrap_err().to_string();
        assert!(error.contains("a field of a namespace cannot be or contain"), "{assign}: {error}");
    }
    // Late lists are copied, and do not lead back.
    let source = "{% set ns = namespace(b=1) %}{% set n2 = namespace() %}{% set ns.a = n2|items %}\
        {% set n2.a = [ns|items] %}{% set ns.a = n2|items %}{{ ns|upper }}";
    assert!(render(source).is_ok_and(|text| text.len() < 100));
    let source = "{% set ns = namespace(g=[]) %}{% set cur = [1] + [2] %}{% set ns.g = ns.g + [cur] %}\
        {% set ns.x = {'m': [1, 2, 3][1:], 'k': [[1] * 3]} %}{{ ns.g }}{{ ns.x.m }}{{ ns.x.k }}";
    assert_eq!(render(source).unwrap(), "[[1, 2]][2, 3][[1, 1, 1]]");
    // What templates of real models do.
    let source = "{% set ns = namespace(a=[], m={}) %}{% for i in range(3) %}{% set ns.a = ns.a + [i] %}\
        {% set ns.m = dict(ns.m, x=i) %}{% endfor %}{% set ns.r = range(2) %}{% set ns.t = 1, 2 %}\
        {% set ns.text|upper %}x{% endset %}{{ ns.a }}{{ ns.m.x }}{{ ns.r|list }}{{ ns.t }}{{ ns.text }}";
    assert_eq!(render(source).unwrap(), "[0, 1, 2]2[0, 1](1, 2)X");
}

#[test]
fn tests_of_long_texts_consume_fuel() {
    for test in ["lower", "upper"] {
        let source = format!(
            "{{% set s = 'a' * 1000000 %}}{{% for i in range(90000) %}}{{% if s is {test} %}}{{% endif %}}\
             {{% endfor %}}"
        );
        let error = render(&source).unwrap_err().to_string();
        assert!(error.contains("fuel"), "{test}: {error}");
    }
}

#[test]
fn escape_sequences_are_those_of_python() {
    let source = "{{ 'a\\\nb\\\r\nc\\a\\v\\U0001F600\\/\\u00e9\\x41\\n\\'\\\\' }}";
    assert_eq!(render(source).unwrap(), "abc\x07\x0b\u{1F600}\\/\u{e9}A\n'\\");
}

/// Keys are parts, too: a map in its own key doubles.
#[test]
fn keys_consume_fuel() {
    let source = "{% set ns = namespace(x='a') %}{% for i in range(40) %}\
        {% set ns.x = {(ns.x, ns.x): 1} %}{% endfor %}";
    let error = render(source).unwrap_err().to_string();
    assert!(error.contains("fuel"), "{error}");
}
