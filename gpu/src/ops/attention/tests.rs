use super::kernels::{Units, tile_bytes, tiles};
use super::*;
use crate::device::{DeviceFeatures, MatrixElement};
use crate::encode::encode;
use crate::state::State;
use crate::steps::Step;
use crate::varying::varying_calls;
use std::collections::HashSet;
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value};

/// A chunk of 24 prompt tokens that attend to all previous ones; the position is an input.
fn chunk(element: ScalarType, depth: usize) -> Graph<'static> {
    let tensor = |sizes: [usize; 4]| {
        Value::Tensor(Tensor {
            scalar_type: element,
            host_type: element,
            sizes: sizes.to_vec(),
            dynamic: false,
            data: None,
            changes: None,
        })
    };
    let (queries, keys) = (tensor([1, 24, 4, depth]), tensor([1, 128, 2, depth]));
    let values = vec![
        queries.clone(),
        keys.clone(),
        keys,
        Value::SymInt(0),
        Value::None,
        Value::Double(0.0),
        Value::Bool(true),
        Value::None,
        queries,
    ];
    let node = Node::new(Operator::LLAMA_CUSTOM_SDPA, vec![0, 1, 2, 3, 4, 5, 6, 7, 8]);
    Graph {
        values,
        nodes: vec![node],
        inputs: vec![0, 1, 2, 3],
        outputs: vec![8],
        ..Graph::default()
    }
}

#[test]
fn a_position_is_read_from_memory_however_many_rows_there_are() {
    let mut wide_sums = DeviceFeatures::multiplying_halves();
    wide_sums.cooperative_matrices.retain(|it| it.result == MatrixElement::F32);
    let cases = [
        (
            ScalarType::Half,
            64,
            DeviceFeatures::multiplying_halves(),
            "attention_cooperative_replayed",
        ),
        (ScalarType::Half, 64, wide_sums, "attention_tiled_replayed"),
        (ScalarType::Half, 64, DeviceFeatures::default(), "attention_tiled_replayed"),
        (ScalarType::Float, 64, DeviceFeatures::default(), "attention_tiled_replayed"),
        (ScalarType::Float, 128, DeviceFeatures::default(), "attention_tiled_replayed"),
        (
            ScalarType::Half,
            256,
            DeviceFeatures::multiplying_halves(),
            "attention_cooperative_replayed",
        ),
        (ScalarType::Float, 260, DeviceFeatures::default(), "attention_replayed"),
    ];
    for (element, depth, mut features, shader) in cases {
        features.subgroup_size = 32;
        let graph = chunk(element, depth);
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        (state.features, state.limits.shared) = (features, 48 << 10);
        state.varying = varying_calls(&graph);
        encode(&graph, &mut state, true).unwrap();
        let mut at = |position| {
            state.integers[3] = Some(position);
            encode(&graph, &mut state, false).unwrap().0
        };
        let [first, next, last] = [at(0), at(24), at(104)];
        for (other, what) in [(&next, "the next chunk"), (&last, "the last chunk")] {
            assert_eq!(first.len(), other.len(), "{shader}, {what}");
            for (a, b) in first.iter().zip(other) {
                assert_eq!(a.key.module.name, shader);
                assert_eq!((&a.key, &a.accesses, a.groups), (&b.key, &b.accesses, b.groups));
                assert_eq!(a.push(), b.push(), "{shader}, {what}");
                assert_ne!(a.in_memory(), b.in_memory(), "{shader}, {what}");
            }
        }
    }
}

#[test]
fn all_invocations_bring_as_much_and_all_take_part() {
    let sixteens = || (1..=16).map(|sides| sides * SIDE);
    let depths = sixteens().flat_map(|keys| sixteens().map(move |values| [keys, values]));
    let mut found = 0;
    for depths in depths {
        for subgroup in [32, 64, 128] {
            for shared in [16 << 10, 48 << 10, 64 << 10] {
                for processors in [1, 100, usize::MAX] {
                    for keys in [1, 33, 1024] {
                        let device = (subgroup, subgroup == 32, shared, processors);
                        for units in Units::all(depths, [96, 1024, keys], device) {
                            found += 1;
                            let (lanes, alone) =
                                (units.lanes(), units.key_parts * units.value_parts == 1);
                            // The shader loads keys and values in groups of eight elements.
                            let brought = depths.map(|depth| 32 * units.key_parts * depth / 8);
                            assert!(brought.iter().all(|it| it % lanes == 0 && it / lanes <= 16));
                            assert_eq!(lanes % subgroup, 0);
                            assert!(alone || subgroup == 32, "sums are combined at the end");
                            let sides = depths[1] / SIDE;
                            assert!(sides.is_multiple_of(units.value_parts));
                            assert!(sides / units.value_parts <= 8, "sums are in registers");
                        }
                    }
                }
            }
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn workgroups_have_fewer_rows_where_there_are_few() {
    let first = |depth, sizes, subgroup| {
        let units = Units::all([depth; 2], sizes, (subgroup, subgroup == 32, 48 << 10, 128));
        units.first().map(|units| (units.parts, units.key_parts))
    };
    assert_eq!(first(64, [96, 1024, 1024], 32), Some((4, 1)), "more than one per processor");
    assert_eq!(first(64, [12, 512, 512], 32), Some((4, 2)), "would be, with fewer rows");
    assert_eq!(first(64, [12, 197, 197], 32), Some((2, 2)));
    assert_eq!(first(64, [12, 197, 32], 32), Some((2, 1)), "too few keys to share");
    assert_eq!(first(64, [96, 16, 1024], 32), Some((1, 2)), "sixteen rows form one part");
    assert_eq!(first(128, [32, 256, 256], 32), Some((4, 1)), "no more shared memory");
    assert_eq!(
        first(80, [16, 1024, 1024], 32),
        Some((2, 1)),
        "five groups of 16 cannot be divided by four"
    );
    assert_eq!(first(256, [8, 512, 512], 32), Some((2, 1)));
    assert_eq!(first(64, [96, 1, 1024], 32), None);
    assert_eq!(first(72, [96, 1024, 1024], 32), None);
    assert_eq!(first(272, [96, 1024, 1024], 32), None);
    assert_eq!(first(64, [12, 197, 197], 64), Some((2, 1)), "parts are processed in turn");
    assert_eq!(first(256, [8, 512, 512], 64), None, "sums exceed the registers of a subgroup");
    assert_eq!(first(64, [12, 197, 197], 16), None);
    let all = Units::all([64; 2], [12, 197, 197], (32, true, 48 << 10, 128));
    assert_eq!(all.len(), 7, "alternatives: {all:?}");
    let shared = |depths| {
        let units = Units::all(depths, [8, 512, 512], (32, true, 48 << 10, 128));
        units.first().map(|units| units.value_parts)
    };
    assert_eq!(shared([256, 128]), Some(1), "queries may be longer");
    assert_eq!(shared([64, 256]), Some(2));
    assert_eq!(shared([64, 144]), None, "nine groups of 16 cannot be divided by two");
}

#[test]
fn tiles_have_as_many_rows_as_there_is_memory_for() {
    let all = |depths, rows, kilobytes: usize| tiles(depths, rows, kilobytes << 10);
    assert_eq!(all([64; 2], 1024, 16), [16, 8, 4]);
    assert_eq!(all([64; 2], 1024, 32), [16, 32, 8, 4]);
    assert_eq!(all([64; 2], 16, 32), [16, 8, 4], "at most the existing rows");
    assert_eq!(all([80; 2], 1024, 16), [16, 8, 4], "keys in two parts are narrower");
    assert_eq!(all([128; 2], 1024, 16), [8, 4]);
    assert_eq!(all([256; 2], 1024, 16), [4]);
    assert_eq!(all([256; 2], 1024, 32), [16, 8, 4]);
    assert_eq!(all([256; 2], 1024, 48), [16, 32, 8, 4]);
    assert_eq!(all([64, 256], 1024, 16), [16, 8, 4], "sums are not shared");
    assert!(all([260; 2], 1024, 256).is_empty());
    assert!(all([66; 2], 1024, 256).is_empty() && all([64, 0], 1024, 256).is_empty());
    assert!(all([64; 2], 7, 48).is_empty(), "single rows");
    assert_eq!(tile_bytes([64; 2], 16), 15_936);
}

/// One row of `heads` heads that share a single head of 128 keys.
fn row(batches: usize, heads: usize, depth: usize) -> Graph<'static> {
    let tensor = |sizes: [usize; 4]| {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: sizes.to_vec(),
            dynamic: true,
            data: None,
            changes: None,
        })
    };
    let keys = tensor([batches, 1, 128, depth]);
    let queries = tensor([batches, heads, 1, depth]);
    Graph {
        values: vec![queries.clone(), keys.clone(), keys, Value::None, queries],
        nodes: vec![Node::new(Operator::ATTENTION, vec![0, 1, 2, 3, 3, 3, 4])],
        inputs: vec![0, 1, 2],
        outputs: vec![4],
        ..Graph::default()
    }
}

#[test]
fn keys_are_shared_by_as_many_heads_as_there_is_memory_for() {
    let cases = [
        ((16, 64), 1),
        ((17, 64), 17),
        ((8, 128), 1),
        ((12, 128), 2),
        ((4, 256), 1),
        ((8, 256), 2),
        ((9, 256), 3),
    ];
    for ((heads, depth), groups) in cases {
        let graph = row(3, heads, depth);
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        let (steps, _) = encode(&graph, &mut state, true).unwrap();
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].key.module.name, "attention_split", "{heads} heads of {depth}");
        assert_eq!(steps[0].groups[1..], [1, 3 * groups], "{heads} heads of {depth}");
    }
}

#[test]
fn shares_of_fewer_batches_take_no_more_memory() {
    let graph = row(9, 4, 8);
    let mut state = State::new(&graph, HashSet::new()).unwrap();
    // One workgroup for each of nine batches; with eight, one batch would need two.
    state.busy = 9 * 128;
    let bytes = |state: &State, steps: &[Step]| {
        assert_eq!(steps.len(), 1);
        state.tensor(steps[0].accesses[5].tensor).unwrap().bytes()
    };
    let (steps, _) = encode(&graph, &mut state, true).unwrap();
    let planned = bytes(&state, &steps);
    // One dim exceeds its bound, another one is smaller.
    for input in 0..3 {
        state.tensors[input].as_mut().unwrap().sizes[0] = 10;
    }
    assert!(encode(&graph, &mut state, false).is_err());
    for batches in 1..9 {
        for input in 0..3 {
            state.tensors[input].as_mut().unwrap().sizes[0] = batches;
        }
        let (steps, _) = encode(&graph, &mut state, false).unwrap();
        assert!(bytes(&state, &steps) <= planned, "{batches} batches");
    }
}
