//! Written YAML parses to the same values and the same comments.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Style, YamlNode, documents, json, read, yaml};

/// Pieces of YAML, valid and invalid.
const PIECES: [&str; 40] = [
    "a: ",
    "b:\n",
    "  ",
    "- ",
    "\n",
    "# note\n",
    " # beside\n",
    "key: value\n",
    "\"q\\n\" ",
    "'it''s' ",
    "|\n",
    ">-\n",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ": ",
    "&x ",
    "*x",
    "<<: ",
    "true",
    "3",
    "~",
    "---\n",
    "...\n",
    "!!str ",
    "? ",
    "%",
    "text text",
    "é",
    "\t",
    "    deeper\n",
    "- - x\n",
    "a: |2\n",
    "'",
    "\"",
    "0x1f",
    "null",
    "y: no\n",
];

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,6}",
        "[ -~]{0,12}",
        Just("true".to_owned()),
        Just("1e3".to_owned()),
        Just("012".to_owned()),
        Just("- x".to_owned()),
        Just("#!/bin/sh\n  run: it\n\n# end\n".to_owned()),
        Just("\n leading\n".to_owned()),
        Just("tab\there\n".to_owned()),
        Just("a: b # c".to_owned()),
        "\\PC{0,8}",
        "[ a\n]{0,8}",
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        words().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(words(), inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn styles() -> impl Strategy<Value = Style> {
    (1_usize..5, any::<bool>()).prop_map(|(indent, lists_indented)| Style {
        indent,
        lists_indented,
    })
}

proptest! {
    #[test]
    fn any_value_is_read_as_it_was_written(value in values(), style in styles()) {
        let text = yaml(&YamlNode::from_json(&value), style);
        let again = read(&text, 1);
        let again = again.unwrap_or_else(|error| panic!("{error:?} in {text:?}"));
        prop_assert_eq!(again.root.map_or(Value::Null, |root| root.value()), value.clone(), "{}", text);
        prop_assert_eq!(serde_json::from_str::<Value>(&json(&YamlNode::from_json(&value))).unwrap(), value);
    }

    #[test]
    fn another_reader_sees_the_same(value in values()) {
        let text = yaml(&YamlNode::from_json(&value), Style::default());
        let other: Result<Value, _> = serde_saphyr::from_str(&text);
        let other = other.unwrap_or_else(|error| panic!("{error} in {text:?}"));
        prop_assert_eq!(other, value, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_and_kept(pieces in prop::collection::vec(0..PIECES.len(), 0..20), style in styles()) {
        let text: String = pieces.iter().map(|index| PIECES[*index]).collect();
        for document in documents(&text) {
            let Ok(found) = read(&document.body, document.line) else {
                continue;
            };
            let Some(root) = found.root else {
                continue;
            };
            let written = yaml(&root, style);
            let again = read(&written, 1);
            let again = again.unwrap_or_else(|error| panic!("{error:?}: {written:?} from {text:?}"));
            let again = again.root.map_or(Value::Null, |root| root.value());
            prop_assert_eq!(again, root.value(), "{:?} from {:?}", written, text);
        }
    }
}

#[track_caller]
fn same(text: &str) {
    let found = read(text, 1).unwrap();
    let mut written = yaml(&found.root.unwrap(), found.style);
    for comment in found.trailing {
        written.push_str(&comment);
        written.push('\n');
    }
    assert_eq!(written, text);
}

#[test]
fn what_people_write_is_written_again() {
    same(
        "# head\na: 1 # one\n\n# two\nb:\n  - x\n  # - y\n  - z   # last\nc:\n  d: |\n    #!/bin/sh\n\n    echo # no comment\n  # e: off\nf: 'q'\n",
    );
    same("a:\n- b: 1\n  # inner\n  c: \"two\"\n- d\n");
    same("a:\n    b:\n        c: [1, \"two\", three]  # flow\n    # end of b\n# end of a\n");
    same("a: {b: 1, c: d}\nempty: {}\nnone: []\nnothing:\n");
    same("- a\n- b: c\n- d: |-\n    x\n    y\n");
    same("# only\n\n# two\nkind: X\n# after\n");
    same("list:\n  # first\n  - a: 1\n    b: 2  # side\n\n  # second\n  - a: 3\n");
}

#[test]
fn words_that_look_like_something_else_are_quoted() {
    for (text, want) in [
        ("yes", "\"yes\""),
        ("12", "\"12\""),
        ("1e3", "\"1e3\""),
        ("null", "\"null\""),
        ("10%", "\"10%\""),
        ("0x1f", "\"0x1f\""),
        ("", "\"\""),
        ("*", "\"*\""),
        ("a: b", "\"a: b\""),
        ("2024-01-01", "\"2024-01-01\""),
        ("720h", "720h"),
        ("100Gi", "100Gi"),
        ("karpenter.sh/nodepool", "karpenter.sh/nodepool"),
        ("al2023@latest", "al2023@latest"),
    ] {
        assert_eq!(
            yaml(&YamlNode::string(text), Style::default()).trim_end(),
            want
        );
    }
    assert_eq!(
        super::scalar_value(&super::Scalar::plain("on")),
        json!(true)
    );
}
