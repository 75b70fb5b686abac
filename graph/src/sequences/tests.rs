//! Tests of the rules on small graphs. Whole programs are compared with single sequences in the
//! facade's tests.

use super::transform::run;
use crate::graph::Graph;
use crate::passes::{dead, text, verify};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// The graph for three sequences; the input `state`, if there is one, is the first.
fn batched(text: &str) -> Result<Graph<'static>, String> {
    let graph = text::parse(text);
    let has_state = text.contains("in state");
    let state: BTreeSet<usize> = graph.inputs.iter().take(has_state.into()).copied().collect();
    let mut graph = run(graph, &state, 3)?;
    dead::run(&mut graph);
    verify::verify(&graph).unwrap();
    Ok(graph)
}

fn calls(text: &str) -> Vec<&'static str> {
    text::operators(&batched(text).unwrap())
}

fn output(graph: &Graph<'_>) -> Vec<usize> {
    graph.tensor(graph.outputs[0]).unwrap().sizes.clone()
}

#[test]
fn rows_are_a_leading_dim() {
    let text = "in x f32[1,4]
        const w f32[6,4] = 0.5
        const b f32[2,1,6] = 0.5
        y f32[1,6] = aten.linear.default(x, w, none)
        z f32[2,1,6] = aten.mul.Tensor(b, y)
        s f32[2,1,6] = aten._softmax.default(z, -1, false)
        p f32[6,2,1] = aten.permute_copy.default(s, [2,0,1])
        out p";
    let graph = batched(text).unwrap();
    assert_eq!(output(&graph), [3, 6, 2, 1]);
    // The tensor of lower rank gets a dim after the rows.
    let expected = [
        "aten.linear.default",
        "aten.unsqueeze_copy.default",
        "aten.mul.Tensor",
        "aten._softmax.default",
        "aten.permute_copy.default",
    ];
    assert_eq!(text::operators(&graph), expected);
    let calls = text::right_sides(&graph);
    assert!(calls[3].contains(", 3, false)"), "{calls:?}");
    assert!(calls[4].contains("[0, 3, 1, 2]"), "{calls:?}");
}

#[test]
fn batched_multiplications_merge_the_rows() {
    let text = "in x f32[2,1,4]
        const k f32[2,4,5] = 0.5
        y f32[2,1,5] = aten.bmm.default(x, k)
        out y";
    let graph = batched(text).unwrap();
    assert_eq!(output(&graph), [3, 2, 1, 5]);
    let bmm = graph.nodes.iter().find(|node| node.operator.name() == "aten.bmm.default").unwrap();
    let sizes = |at: usize| graph.tensor(bmm.args[at]).unwrap().sizes.clone();
    assert_eq!([sizes(0), sizes(1)], [[6, 1, 4], [6, 4, 5]]);
}

#[test]
fn what_all_sequences_share_needs_no_rule() {
    let text = "in x f32[2]
        const w f32[2] = 0.5
        m f32[] = aten.median.default(w)
        y f32[2] = aten.add.Tensor(x, m, 1)
        out y";
    assert_eq!(calls(text), ["aten.median.default", "aten.add.Tensor"]);
    let reason = batched(&text.replace("median.default(w)", "median.default(x)")).unwrap_err();
    assert_eq!(reason, "aten.median.default: an operator without a rule");
}

#[test]
fn state_has_slots() {
    // Read as a whole, and replaced.
    let text = "in state f32[1,2]
        in x f32[1,1]
        y f32[1,3] = aten.cat.default([state, x], 1)
        new f32[1,2] = aten.slice_copy.Tensor(y, 1, 1, 3, 1)
        update new state
        out y";
    let graph = batched(text).unwrap();
    assert_eq!(
        text::operators(&graph),
        [
            "aten.index_select.default",
            "aten.cat.default",
            "aten.slice_copy.Tensor",
            "torchlet.slots_put"
        ]
    );
    let [(new, old)] = graph.updates[..] else { panic!() };
    let sizes = |id| graph.tensor(id).unwrap().sizes.clone();
    assert_eq!(
        [sizes(new), sizes(old), output(&graph)],
        [[3, 1, 2].to_vec(), [3, 1, 2].to_vec(), [3, 1, 3].to_vec()]
    );
    // The slots are the last input.
    let slots = graph.tensor(*graph.inputs.last().unwrap()).unwrap();
    assert_eq!((&slots.sizes[..], slots.dynamic), (&[3][..], true));
}

#[test]
fn refusals_name_the_operator() {
    for (call, reason) in [
        ("aten.index_put.default(x, [i], x, true)", "sums of elements"),
        ("aten.add.Tensor(x, x, 1)", ""),
    ] {
        let text = alloc::format!(
            "in x f32[2]
            in i i64[2]
            y f32[2] = {call}
            out y"
        );
        match batched(&text) {
            Ok(_) => assert_eq!(reason, ""),
            Err(why) => assert!(!reason.is_empty() && why.contains(reason), "{why}"),
        }
    }
}
