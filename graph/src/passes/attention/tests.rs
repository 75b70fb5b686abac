use crate::graph::{Graph, Value};
use crate::operators::Operator;
use crate::passes::{dead, redundant, text, verify};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

fn fused(text: &str) -> (Graph<'static>, Vec<String>) {
    let mut graph = text::parse(text);
    redundant::run(&mut graph);
    dead::run(&mut graph);
    super::run(&mut graph);
    redundant::run(&mut graph);
    dead::run(&mut graph);
    verify::verify(&graph).unwrap();
    let calls = text::calls(&graph);
    (graph, calls)
}

/// Decomposed `F.scaled_dot_product_attention` over the `q`, `k` and `v` of `declarations`. `mask`
/// computes `masked` from `scores`.
fn decomposed(declarations: &str, mask: &str, masked: &str) -> String {
    format!(
        "in q f32[2,4,16,8]
         in k f32[2,4,12,8]
         in v f32[2,4,12,6]
         {declarations}
         qs f32[2,4,16,8] = aten.mul.Scalar(q, 0.5946035575013605)
         kt f32[2,4,8,12] = aten.permute_copy.default(k, [0, 1, 3, 2])
         ks f32[2,4,8,12] = aten.mul.Scalar(kt, 0.5946035575013605)
         qe f32[2,4,16,8] = aten.expand_copy.default(qs, [2, 4, 16, 8])
         qc f32[2,4,16,8] = dim_order_ops._clone_dim_order.default(qe, false, [0, 1, 2, 3])
         q3 f32[8,16,8] = aten.view_copy.default(qc, [8, 16, 8])
         ke f32[2,4,8,12] = aten.expand_copy.default(ks, [2, 4, 8, 12])
         k3 f32[8,8,12] = aten.view_copy.default(ke, [8, 8, 12])
         s3 f32[8,16,12] = aten.bmm.default(q3, k3)
         scores f32[2,4,16,12] = aten.view_copy.default(s3, [2, 4, 16, 12])
         {mask}
         soft f32[2,4,16,12] = aten._softmax.default({masked}, -1, false)
         eq bool[2,4,16,12] = aten.eq.Scalar({masked}, -inf)
         not bool[2,4,16,12] = aten.logical_not.default(eq)
         any bool[2,4,16,1] = aten.any.dim(not, -1, true)
         none_left bool[2,4,16,1] = aten.logical_not.default(any)
         zeros f32[2,4,16,12] = aten.full_like.default(soft, 0)
         safe f32[2,4,16,12] = aten.where.self(none_left, zeros, soft)
         we f32[2,4,16,12] = aten.expand_copy.default(safe, [2, 4, 16, 12])
         w3 f32[8,16,12] = aten.view_copy.default(we, [8, 16, 12])
         v3 f32[8,12,6] = aten.view_copy.default(v, [8, 12, 6])
         o3 f32[8,16,6] = aten.bmm.default(w3, v3)
         o f32[2,4,16,6] = aten.view_copy.default(o3, [2, 4, 16, 6])
         out o"
    )
}

#[test]
fn the_decomposition_is_one_call() {
    let (graph, calls) = fused(&decomposed("", "", "scores"));
    let [call] = &calls[..] else { panic!("{calls:#?}") };
    let scale = 0.5946035575013605f64 * 0.5946035575013605;
    let out = graph.outputs[0];
    assert_eq!(*call, format!("%{out} = et_vk.sdpa.default(%0, %1, %2, none, {scale:?})"));
}

#[test]
fn a_mask_that_may_hide_a_row_keeps_its_zeros() {
    let mask = "masked f32[2,4,16,12] = aten.add.Tensor(scores, m, 1)";
    let (_, calls) = fused(&decomposed("in m f32[2,1,1,12]", mask, "masked"));
    assert!(calls[0].contains("torchlet.attention(%0, %1, %2, %3, "), "{calls:#?}");
    assert_eq!(calls.len(), 1);
}

#[test]
fn a_constant_mask_is_looked_at() {
    let mask = "masked f32[2,4,16,12] = aten.add.Tensor(m, scores, 1)";
    for (numbers, operator) in [("0", Operator::ET_VK_SDPA), ("-inf", Operator::ATTENTION)] {
        let declaration = format!("const m f32[16,12] = {numbers}");
        let (graph, calls) = fused(&decomposed(&declaration, mask, "masked"));
        assert_eq!(calls.len(), 1, "{calls:#?}");
        assert_eq!(graph.nodes[0].operator, operator);
    }
}

/// Operator and last argument of the call for a constant mask of 16 rows and 12 keys, in which row
/// `i` sees keys before `ends(i)`.
fn causal(ends: impl Fn(usize) -> usize, rows: usize) -> (Operator, String) {
    let shown = |at: usize| at % 12 < ends(at / 12);
    let elements = |of: [&str; 2]| {
        let all = (0..rows * 12).map(|at| of[usize::from(shown(at))]);
        all.collect::<Vec<_>>().join(" ")
    };
    let call = |declaration: String, mask: &str| {
        let (graph, calls) = fused(&decomposed(&declaration, mask, "masked"));
        let (call, operator) = (&calls[calls.len() - 1], graph.nodes[calls.len() - 1].operator);
        (operator, call[call.rfind(", ").unwrap() + 2..call.len() - 1].into(), calls.len())
    };
    let sizes = format!("[{rows},12]");
    let added = call(
        format!("const m f32{sizes} = {}", elements(["-inf", "0"])),
        "masked f32[2,4,16,12] = aten.add.Tensor(m, scores, 1)",
    );
    // As the exporter decomposes `F.scaled_dot_product_attention`, and as models write it.
    let made = call(
        format!(
            "const c bool{sizes} = {}
             z f32{sizes} = aten.full.default([{rows}, 12], 0)
             i f32[] = aten.scalar_tensor.default(-inf)
             m f32{sizes} = aten.where.self(c, z, i)",
            elements(["0", "1"])
        ),
        "masked f32[2,4,16,12] = aten.add.Tensor(scores, m, 1)",
    );
    let filled = call(
        format!("const c bool{sizes} = {}", elements(["1", "0"])),
        "low f32[] = aten.scalar_tensor.default(-1e38)
         masked f32[2,4,16,12] = aten.where.self(c, low, scores)",
    );
    assert_eq!((&added.0, &added.1), (&made.0, &made.1));
    assert_eq!((&added.0, &added.1), (&filled.0, &filled.1));
    if added.0 == Operator::ATTENTION && added.1 != "none)" {
        assert_eq!([added.2, made.2, filled.2], [1; 3], "the mask is not made any more");
    }
    (added.0, added.1)
}

#[test]
fn a_mask_that_shows_each_row_a_key_more_is_an_offset() {
    for offset in [0, 3, 10] {
        let found = causal(|row| (offset + row + 1).min(12), 16);
        assert_eq!(found, (Operator::ATTENTION, format!("{offset}")));
    }
}

#[test]
fn a_mask_that_hides_nothing_is_none() {
    let (operator, _) = causal(|_| 12, 16);
    assert_eq!(operator, Operator::ET_VK_SDPA);
}

#[test]
fn other_masks_stay() {
    let skips = |row: usize| if row == 7 { 3 } else { (row + 1).min(12) };
    assert_eq!(causal(skips, 16).0, Operator::ET_VK_SDPA);
    // One row for all.
    assert_eq!(causal(|_| 1, 1).0, Operator::ET_VK_SDPA);
    // The first row sees nothing.
    let hides = format!("const m f32[16,12] = {}", causal_from(-1));
    let mask = "masked f32[2,4,16,12] = aten.add.Tensor(m, scores, 1)";
    let (graph, calls) = fused(&decomposed(&hides, mask, "masked"));
    assert_eq!(graph.nodes[0].operator, Operator::ATTENTION);
    assert!(calls[0].ends_with(", none)"), "{calls:#?}");
    // Each batch has its own mask.
    let both = format!("{} {}", causal_from(0), causal_from(1));
    let of_batches = format!("const m f32[2,1,16,12] = {both}");
    let (graph, _) = fused(&decomposed(&of_batches, mask, "masked"));
    assert_eq!(graph.nodes[0].operator, Operator::ET_VK_SDPA);
    let same = format!("const m f32[2,1,16,12] = {0} {0}", causal_from(1));
    let (_, calls) = fused(&decomposed(&same, mask, "masked"));
    assert!(calls[0].ends_with(", 1)"), "{calls:#?}");
}

#[test]
fn masks_of_calls_that_are_there_are_looked_at_too() {
    let call = |mask: &str, call: &str| {
        let text = format!(
            "in q f16[2,4,16,8]
             in k f16[2,2,12,8]
             in v f16[2,2,12,6]
             const m {mask}
             m4 {} = aten.view_copy.default(m, [1, 1, 16, 12])
             o f16[2,4,16,6] = {call}
             out o",
            mask.split_once(' ').unwrap().0.replace("[16,12]", "[1,1,16,12]")
        );
        fused(&text).1.pop().unwrap()
    };
    let shown = |offset| causal_from(offset).replace("-inf", "no").replace('0', "1");
    let added = format!("f16[16,12] = {}", causal_from(2));
    let condition = format!("bool[16,12] = {}", shown(2).replace("no", "0"));
    for mask in [&added, &condition] {
        let found = call(mask, "torchlet.attention(q, k, v, m4, 0.5, none)");
        assert!(found.ends_with("torchlet.attention(%0, %1, %2, none, 0.5, 2)"), "{found}");
        let found = call(mask, "et_vk.sdpa.default(q, k, v, m4)");
        assert!(found.ends_with("torchlet.attention(%0, %1, %2, none, none, 2)"), "{found}");
    }
    // A call with an offset stays, and so does a mask with fully masked rows.
    let found = call(&added, "torchlet.attention(q, k, v, m4, 0.5, 1)");
    assert!(found.ends_with(", 0.5, 1)") && !found.contains("none"), "{found}");
    let hides = format!("f16[16,12] = {}", causal_from(-1));
    let found = call(&hides, "torchlet.attention(q, k, v, m4, 0.5, none)");
    assert!(found.ends_with(", 0.5, none)") && !found.contains("none, 0.5"), "{found}");
    let nothing = format!("f16[16,12] = {}", causal_from(11));
    let found = call(&nothing, "et_vk.sdpa.default(q, k, v, m4)");
    assert!(found.ends_with("et_vk.sdpa.default(%0, %1, %2, none, none)"), "{found}");
}

#[test]
fn a_mask_is_looked_at_for_each_use() {
    // One mask row with padding at the end, for a call of one row and a call of 16.
    let calls = |first: usize| {
        let shapes = if first == 1 { [1, 16] } else { [16, 1] };
        let declared = |at: usize| format!("in q{at} f32[1,2,{},8]", shapes[at]);
        let call = |at: usize| {
            format!("o{at} f32[1,2,{},8] = et_vk.sdpa.default(q{at}, k, k, m)", shapes[at])
        };
        let text = format!(
            "{}
             {}
             in k f32[1,2,12,8]
             const m f32[1,1,1,12] = 0 0 0 0 0 0 0 0 -inf -inf -inf -inf
             {}
             {}
             out o0 o1",
            declared(0),
            declared(1),
            call(0),
            call(1)
        );
        fused(&text).1
    };
    for first in [1, 16] {
        let calls = calls(first);
        let one = usize::from(first != 1);
        assert!(calls[one].ends_with(", none, none, 7)"), "{calls:#?}");
        assert!(calls[1 - one].contains("et_vk.sdpa.default("), "{calls:#?}");
    }
}

#[test]
fn a_view_that_is_broadcast_elsewhere_is_another_mask() {
    // Batch `i` of 16 sees keys up to `i`: the constant alone looks like a causal mask.
    let shown = (0..256).map(|at| if at % 16 <= at / 16 { "0" } else { "-inf" });
    let shown = shown.collect::<Vec<_>>().join(" ");
    for (view, batches, heads) in [("16,1,1,16", 16, 1), ("1,16,1,16", 1, 16)] {
        let heads = format!("f32[{batches},{heads},16,16]");
        let text = format!(
            "in q {heads}
             const m f32[16,16] = {shown}
             m4 f32[{view}] = aten.view_copy.default(m, [{view}])
             o {heads} = et_vk.sdpa.default(q, q, q, m4)
             out o"
        );
        let (_, calls) = fused(&text);
        assert!(calls[calls.len() - 1].contains("et_vk.sdpa.default("), "{calls:#?}");
    }
}

#[test]
fn numbers_of_masks_are_those_of_their_type() {
    // As `f16`, this is minus infinity: fully masked rows stay zeros.
    let text = decomposed(
        "in c bool[16,12]",
        "low f16[] = aten.scalar_tensor.default(-3.4e38)
         z f16[] = aten.scalar_tensor.default(0)
         m f16[16,12] = aten.where.self(c, z, low)
         masked f16[2,4,16,12] = aten.add.Tensor(scores, m, 1)",
        "masked",
    )
    .replace("f32", "f16")
    .replace("in c bool[16,12]", "const c bool[16,12] = 0");
    let (graph, calls) = fused(&text);
    let operators: Vec<Operator> = graph.nodes.iter().map(|node| node.operator).collect();
    assert!(operators.contains(&Operator::ATTENTION), "{calls:#?}");
}

/// An additive mask in which row `i` sees keys up to `offset + i`.
fn causal_from(offset: isize) -> String {
    let shown = |at: usize| (at % 12) as isize <= offset + (at / 12) as isize;
    let all = (0..16 * 12).map(|at| if shown(at) { "0" } else { "-inf" });
    all.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_mask_that_is_expanded_is_taken_before() {
    let mask = "wide f32[2,4,16,12] = aten.expand_copy.default(m, [2, 4, 16, 12])
        masked f32[2,4,16,12] = aten.add.Tensor(scores, wide, 1)";
    let (_, calls) = fused(&decomposed("in m f32[12]", mask, "masked"));
    assert!(calls[0].contains("(%0, %1, %2, %3, "), "{calls:#?}");
}

#[test]
fn the_idiom_is_the_scores_own() {
    // The infinities of another tensor are tested.
    let text = decomposed("in other f32[2,4,16,12]", "", "scores")
        .replace("aten.eq.Scalar(scores,", "aten.eq.Scalar(other,");
    assert_eq!(
        fused(&text).0.nodes.iter().filter(|node| node.operator == Operator::BMM).count(),
        2
    );
    let text = decomposed("", "", "scores")
        .replace("full_like.default(soft, 0)", "full_like.default(soft, 1)");
    assert_eq!(
        fused(&text).0.nodes.iter().filter(|node| node.operator == Operator::BMM).count(),
        2
    );
}

#[test]
fn weights_that_are_taken_are_computed() {
    for taken in ["soft", "safe", "w3"] {
        let text = decomposed("", "", "scores").replace("out o", &format!("out o {taken}"));
        let (graph, _) = fused(&text);
        assert!(graph.nodes.iter().any(|node| node.operator == Operator::SOFTMAX), "{taken}");
        assert!(!graph.nodes.iter().any(|node| node.operator == Operator::ET_VK_SDPA), "{taken}");
    }
}

#[test]
fn bounds_are_no_shapes() {
    let mut graph = text::parse(&decomposed("", "", "scores"));
    let Value::Tensor(tensor) = &mut graph.values[0] else { unreachable!() };
    tensor.dynamic = true;
    assert_eq!(super::run(&mut graph), 0);
}

/// Attention as models write it, over heads that are views of projections. `middle` computes
/// `masked` from `scores`.
fn written(declarations: &str, middle: &str) -> String {
    format!(
        "in x f32[2,16,32]
         in y f32[2,16,32]
         in z f32[2,16,32]
         {declarations}
         qv f32[2,16,4,8] = aten.view_copy.default(x, [2, 16, 4, 8])
         q f32[2,4,16,8] = aten.permute_copy.default(qv, [0, 2, 1, 3])
         kv f32[2,16,4,8] = aten.view_copy.default(y, [2, 16, 4, 8])
         k f32[2,4,16,8] = aten.permute_copy.default(kv, [0, 2, 1, 3])
         vv f32[2,16,4,8] = aten.view_copy.default(z, [2, 16, 4, 8])
         v f32[2,4,16,8] = aten.permute_copy.default(vv, [0, 2, 1, 3])
         kt f32[2,4,8,16] = aten.permute_copy.default(k, [0, 1, 3, 2])
         q3 f32[8,16,8] = aten.view_copy.default(q, [8, 16, 8])
         k3 f32[8,8,16] = aten.view_copy.default(kt, [8, 8, 16])
         s3 f32[8,16,16] = aten.bmm.default(q3, k3)
         scores f32[2,4,16,16] = aten.view_copy.default(s3, [2, 4, 16, 16])
         {middle}
         w f32[2,4,16,16] = aten._softmax.default(masked, 3, false)
         w3 f32[8,16,16] = aten.view_copy.default(w, [8, 16, 16])
         v3 f32[8,16,8] = aten.view_copy.default(v, [8, 16, 8])
         o3 f32[8,16,8] = aten.bmm.default(w3, v3)
         o f32[2,4,16,8] = aten.view_copy.default(o3, [2, 4, 16, 8])
         op f32[2,16,4,8] = aten.permute_copy.default(o, [0, 2, 1, 3])
         r f32[2,16,32] = aten.view_copy.default(op, [2, 16, 32])
         out r"
    )
}

#[test]
fn scores_divided_by_a_root_and_masked_softly() {
    let middle = "scaled f32[2,4,16,16] = aten.div.Tensor(scores, root)
        masked f32[2,4,16,16] = aten.add.Tensor(scaled, m, 1)";
    let (graph, calls) = fused(&written("const root f32[] = 4\nin m f32[2,1,1,16]", middle));
    let operators = [
        "aten.view_copy.default",
        "aten.permute_copy.default",
        "aten.view_copy.default",
        "aten.view_copy.default",
        "aten.permute_copy.default",
        "aten.permute_copy.default",
        "et_vk.sdpa.default",
        "aten.permute_copy.default",
        "aten.view_copy.default",
    ];
    assert_eq!(text::operators(&graph), operators, "{calls:#?}");
    // Keys are transposed no further than queries and values.
    let keys = graph.nodes[5].args[2];
    assert_eq!(calls[5], format!("%{keys} = aten.permute_copy.default(%7, [0, 2, 1, 3])"));
    assert!(calls[6].ends_with(&format!("(%6, %{keys}, %10, %4, 0.25)")), "{calls:#?}");
}

#[test]
fn scores_filled_with_minus_infinity() {
    let middle = "fill f32[] = aten.scalar_tensor.default(-inf)
        scaled f32[2,4,16,16] = aten.mul.Scalar(scores, 0.5)
        masked f32[2,4,16,16] = aten.where.self(m, fill, scaled)";
    let (graph, calls) = fused(&written("in m bool[1,1,16,16]", middle));
    let at = graph.nodes.iter().position(|node| node.operator == Operator::ET_VK_SDPA).unwrap();
    let made = graph.nodes[at].args[3];
    // The condition is the first argument; the fill value is a constant.
    assert!(calls.iter().any(|call| call.starts_with(&format!("%{made} = aten.where.self(%3, "))));
    let Value::Tensor(mask) = &graph.values[made] else { unreachable!() };
    assert_eq!(mask.sizes, [1, 1, 16, 16]);
}

#[test]
fn scores_filled_with_what_is_not_low_enough() {
    for (number, count) in [("-3.4028234663852886e38", 0), ("-10000.0", 2)] {
        let middle = format!(
            "const low f32[] = {number}
             masked f32[2,4,16,16] = aten.where.self(m, scores, low)"
        );
        let (graph, _) = fused(&written("in m bool[1,1,16,16]", &middle));
        let left = graph.nodes.iter().filter(|node| node.operator == Operator::BMM);
        assert_eq!(left.count(), count, "{number}");
    }
}

#[test]
fn sums_with_a_factor_are_no_masks() {
    let middle = "masked f32[2,4,16,16] = aten.add.Tensor(scores, m, 2)";
    let (graph, _) = fused(&written("in m f32[2,1,1,16]", middle));
    assert_eq!(graph.nodes.iter().filter(|node| node.operator == Operator::BMM).count(), 2);
}

#[test]
fn products_of_three_dimensions() {
    // As `nn.MultiheadAttention` writes it, with the mask in `baddbmm`.
    let (graph, calls) = fused(
        "in q f32[8,16,4]
         in k f32[16,8,4]
         in v f32[8,16,4]
         in m f32[1,16,16]
         const scale f32[] = 0.5
         qs f32[8,16,4] = aten.mul.Tensor(q, scale)
         kt f32[8,4,16] = aten.permute_copy.default(k, [1, 2, 0])
         s f32[8,16,16] = aten.baddbmm.default(m, qs, kt, 1, 1)
         w f32[8,16,16] = aten._softmax.default(s, -1, false)
         o f32[8,16,4] = aten.bmm.default(w, v)
         out o",
    );
    let at = graph.nodes.iter().position(|node| node.operator == Operator::ET_VK_SDPA).unwrap();
    let shapes: Vec<&[usize]> = graph.nodes[at].args[..4]
        .iter()
        .map(|id| match &graph.values[*id] {
            Value::Tensor(tensor) => tensor.sizes.as_slice(),
            _ => &[],
        })
        .collect();
    assert_eq!(shapes, [&[1, 8, 16, 4][..], &[1, 8, 16, 4], &[1, 8, 16, 4], &[1, 1, 16, 16]]);
    assert!(calls.iter().any(|call| call.contains("permute_copy.default(%1, [1, 0, 2])")));
}

#[test]
fn transposed_keys_that_are_no_permutation_are_permuted() {
    let (graph, calls) = fused(
        "in q f32[8,16,4]
         in kt f32[8,4,12]
         in v f32[8,12,4]
         s f32[8,16,12] = aten.bmm.default(q, kt)
         w f32[8,16,12] = aten._softmax.default(s, -1, false)
         o f32[8,16,4] = aten.bmm.default(w, v)
         out o",
    );
    assert!(text::operators(&graph).contains(&"et_vk.sdpa.default"), "{calls:#?}");
    assert!(calls.iter().any(|call| call.contains("[0, 1, 3, 2]")), "{calls:#?}");
}

#[test]
fn softmax_in_a_wider_type() {
    let (graph, calls) = fused(
        "in q f16[8,16,4]
         in k f16[8,16,4]
         in v f16[8,16,4]
         in m f32[16,16]
         kt f16[8,4,16] = aten.permute_copy.default(k, [0, 2, 1])
         s f16[8,16,16] = aten.bmm.default(q, kt)
         wide f32[8,16,16] = aten._to_copy.default(s)
         masked f32[8,16,16] = aten.add.Tensor(wide, m, 1)
         w f32[8,16,16] = aten._softmax.default(masked, -1, false)
         narrow f16[8,16,16] = aten._to_copy.default(w)
         o f16[8,16,4] = aten.bmm.default(narrow, v)
         out o",
    );
    assert!(text::operators(&graph).contains(&"et_vk.sdpa.default"), "{calls:#?}");
    assert!(!text::operators(&graph).contains(&"aten.bmm.default"), "{calls:#?}");
}

#[test]
fn heads_that_share_keys() {
    let (graph, calls) = fused(
        "in q f32[1,8,16,4]
         in k f32[1,2,16,4]
         in v f32[1,2,16,4]
         ku f32[1,2,1,16,4] = aten.unsqueeze_copy.default(k, 2)
         ke f32[1,2,4,16,4] = aten.expand_copy.default(ku, [1, 2, 4, 16, 4])
         kk f32[1,8,16,4] = aten.view_copy.default(ke, [1, 8, 16, 4])
         vu f32[1,2,1,16,4] = aten.unsqueeze_copy.default(v, 2)
         ve f32[1,2,4,16,4] = aten.expand_copy.default(vu, [1, 2, 4, 16, 4])
         vv f32[8,16,4] = aten.view_copy.default(ve, [8, 16, 4])
         q3 f32[8,16,4] = aten.view_copy.default(q, [8, 16, 4])
         kt f32[1,8,4,16] = aten.permute_copy.default(kk, [0, 1, 3, 2])
         k3 f32[8,4,16] = aten.view_copy.default(kt, [8, 4, 16])
         s f32[8,16,16] = aten.bmm.default(q3, k3)
         s4 f32[1,8,16,16] = aten.view_copy.default(s, [1, 8, 16, 16])
         w f32[1,8,16,16] = aten._softmax.default(s4, -1, false)
         w3 f32[8,16,16] = aten.view_copy.default(w, [8, 16, 16])
         o f32[8,16,4] = aten.bmm.default(w3, vv)
         out o",
    );
    assert_eq!(graph.nodes[0].operator, Operator::ATTENTION, "{calls:#?}");
    assert_eq!(graph.nodes[0].args[..3], [0, 1, 2]);
}

#[test]
fn keys_that_are_overwritten_meanwhile() {
    let (graph, _) = fused(
        "in q f32[1,4,1,8]
         in new f32[1,1,4,8]
         in v f32[4,16,8]
         var cache f32[1,16,4,8]
         kt f32[1,4,8,16] = aten.permute_copy.default(cache, [0, 2, 3, 1])
         q3 f32[4,1,8] = aten.view_copy.default(q, [4, 1, 8])
         k3 f32[4,8,16] = aten.view_copy.default(kt, [4, 8, 16])
         s f32[4,1,16] = aten.bmm.default(q3, k3)
         u f32[1,1,4,8] = llama.update_cache.default(new, cache, 3)
         w f32[4,1,16] = aten._softmax.default(s, -1, false)
         o f32[4,1,8] = aten.bmm.default(w, v)
         out o",
    );
    let place = |operator| graph.nodes.iter().position(|node| node.operator == operator).unwrap();
    // The cache is read before it is written.
    assert!(place(Operator::PERMUTE_COPY) < place(Operator::LLAMA_UPDATE_CACHE));
}

/// Windowed scores, two windows per image: a bias per head, and a mask between the parts of a
/// window.
fn windowed(bias: &str, window: &str) -> String {
    format!(
        "in q f32[8,16,8]
         in kt f32[8,8,16]
         in v f32[8,16,8]
         in bias f32{bias}
         in window f32{window}
         s f32[8,16,16] = aten.bmm.default(q, kt)
         s4 f32[4,2,16,16] = aten.view_copy.default(s, [4, 2, 16, 16])
         a f32[4,2,16,16] = aten.add.Tensor(s4, bias, 1)
         a5 f32[2,2,2,16,16] = aten.view_copy.default(a, [2, 2, 2, 16, 16])
         b5 f32[2,2,2,16,16] = aten.add.Tensor(a5, window, 1)
         b f32[4,2,16,16] = aten.view_copy.default(b5, [4, 2, 16, 16])
         soft f32[4,2,16,16] = aten._softmax.default(b, -1, false)
         w f32[8,16,16] = aten.view_copy.default(soft, [8, 16, 16])
         o f32[8,16,8] = aten.bmm.default(w, v)
         out o"
    )
}

#[test]
fn a_bias_of_heads_and_hidden_parts_of_windows_are_one_mask() {
    let (graph, calls) = fused(&windowed("[1,2,16,16]", "[2,2,1,16,16]"));
    let sum = graph.nodes.iter().find(|node| node.operator == Operator::ADD_TENSOR).unwrap();
    let masks = |at: usize| graph.tensor(sum.args[at]).unwrap().sizes.clone();
    let mut both = [masks(0), masks(1)];
    both.sort();
    assert_eq!(both, [[1, 2, 16, 16], [4, 1, 16, 16]]);
    assert_eq!(graph.tensor(*sum.args.last().unwrap()).unwrap().sizes, [4, 2, 16, 16]);
    let adds = calls.iter().filter(|call| call.contains("aten.add.Tensor")).count();
    assert_eq!((adds, calls.iter().any(|call| call.contains("et_vk.sdpa.default"))), (1, true));
}

#[test]
fn a_mask_of_some_windows_stays() {
    // Masks of alternate windows, and of windows that are shared between images but not between
    // heads.
    let (_, calls) = fused(&windowed("[1,2,16,16]", "[2,1,2,16,16]"));
    assert!(!calls.iter().any(|call| call.contains("sdpa")), "{calls:#?}");
}
