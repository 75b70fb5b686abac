use super::*;
use crate::device::{DeviceKind, Limits};
use std::collections::HashSet;

fn tiling(sizes: [usize; 4], kind: DeviceKind) -> Option<Tiling> {
    let [batches, m, n, k] = sizes;
    let shape = Shape { batches, m, n, k, windows: false, octets: true, varies: false };
    let features = DeviceFeatures::default();
    let (factors, busy) = ([Element::F32; 2].into(), kind.busy_invocations());
    Tiling::of(shape, &Constraints::new(factors, busy, &features, 1 << 15))
}

#[test]
fn small_and_thin_products_have_no_tiles() {
    let discrete = |sizes| tiling(sizes, DeviceKind::Discrete);
    assert_eq!(discrete([1, 64, 256, 256]), None);
    assert_eq!(discrete([1, 1, 1 << 14, 1 << 14]), None);
    assert_eq!(discrete([1, 1 << 14, 31, 1 << 14]), None);
    assert_eq!(discrete([1, 1 << 14, 1 << 14, 31]), None);
    assert!(discrete([1, 512, 512, 512]).is_some());
    assert!(tiling([1, 64, 256, 256], DeviceKind::Cpu).is_some());
}

#[test]
fn few_tiles_share_their_sums() {
    let splits = |sizes| tiling(sizes, DeviceKind::Discrete).map(|tiling| tiling.splits);
    assert_eq!(splits([1, 197, 768, 768]), Some(6));
    assert_eq!(splits([1, 197, 768, 3072]), Some(10));
    assert_eq!(splits([1, 197, 3072, 768]), Some(2));
    assert_eq!(splits([1, 2048, 2048, 2048]), Some(1));
    assert_eq!(splits([64, 197, 768, 768]), Some(1));
    assert_eq!(splits([usize::MAX, 197, 768, 768]), Some(1));
}

#[test]
fn tiles_that_are_shared_are_smaller_where_subgroups_multiply() {
    let features = DeviceFeatures::multiplying_halves();
    let tile = |m| {
        let shape =
            Shape { batches: 1, m, n: 768, k: 768, windows: false, octets: true, varies: false };
        let busy = DeviceKind::Discrete.busy_invocations();
        Tiling::of(shape, &Constraints::new([Element::F16; 2].into(), busy, &features, 48 << 10))
            .map(|it| it.tile)
    };
    assert_eq!(tile(197), Some([32, 64]));
    assert_eq!(tile(512), Some([32, 64]));
    assert_eq!(tile(1024), Some([64, 64]));
    assert_eq!(tile(2048), Some([64, 64]));
    assert_eq!(tile(8192), Some([128, 192]));
}

#[test]
fn other_tiles_fit_and_differ() {
    let features = DeviceFeatures::multiplying_halves();
    let busy = DeviceKind::Discrete.busy_invocations();
    for (m, windows, octets) in
        [(197, false, true), (8192, false, true), (512, true, true), (40, false, false)]
    {
        let shape = Shape { batches: 1, m, n: 4096, k: 768, windows, octets, varies: false };
        for shared in [32 << 10, 48 << 10] {
            let first = Tiling::of(
                shape,
                &Constraints::new([Element::F16; 2].into(), busy, &features, shared),
            )
            .unwrap();
            let others = first.others(shape, shared);
            assert!(others.len() > 3, "{others:?}");
            assert!(others.iter().any(|other| other.matrices.is_none()));
            for (at, other) in others.iter().enumerate() {
                assert!(*other != first && !others[..at].contains(other), "{other:?}");
                assert!((1..=MAX_SPLITS).contains(&other.splits));
                assert!(other.matrices.is_none() || other.shared() <= shared as usize);
                let is_large = other.tile == [LARGE_SIDE; 2];
                assert!(!is_large || (!windows && m >= LARGE_SIDE));
                assert!(other.terms <= 32 || !is_large || other.lanes == MANY_LANES);
                assert!(octets || other.matrices.is_none() || other.terms == 32, "{other:?}");
            }
        }
    }
}

#[test]
fn no_more_terms_are_brought_than_there_are() {
    let features = DeviceFeatures::multiplying_halves();
    let terms = |batches, side, k| {
        let shape =
            Shape { batches, m: side, n: side, k, windows: false, octets: true, varies: false };
        let busy = DeviceKind::Discrete.busy_invocations();
        Tiling::of(shape, &Constraints::new([Element::F16; 2].into(), busy, &features, 48 << 10))
            .map(|it| it.terms)
    };
    assert_eq!([terms(40, 224, 32), terms(40, 224, 40)], [Some(32), Some(64)]);
    assert_eq!([terms(4, 320, 96), terms(4, 320, 1024)], [Some(128), Some(64)]);
}

#[test]
fn tiles_are_no_larger_than_they_need_be() {
    let tile = |m, n| tiling([1, m, n, 4096], DeviceKind::Integrated).map(|tiling| tiling.tile);
    assert_eq!(tile(32, 256), Some([32, 64]));
    assert_eq!(tile(256, 32), Some([64, 32]));
    assert_eq!(tile(32, 32), Some([64, 64]));
    assert_eq!(tile(33, 256), Some([64, 64]));
}

#[test]
fn tiles_are_large_where_there_are_many() {
    let tile = |m, n| tiling([1, m, n, 2048], DeviceKind::Discrete).map(|tiling| tiling.tile);
    assert_eq!(tile(4096, 4096), Some([64, 128]));
    assert_eq!(tile(512, 2048), Some([64, 64]));
    assert_eq!(tile(127, 1 << 20), Some([64, 64]));
    let shape = Shape {
        batches: 1,
        m: 4096,
        n: 4096,
        k: 4096,
        windows: false,
        octets: true,
        varies: false,
    };
    let busy = DeviceKind::Discrete.busy_invocations();
    let (factors, features) = (Factors::from([Element::F32; 2]), DeviceFeatures::default());
    let means = |shared| Constraints::new(factors, busy, &features, shared);
    let with = |shared| Tiling::of(shape, &means(shared)).map(|tiling| tiling.tile);
    assert_eq!(with(Limits::MIN.shared), Some([64, 128]));
    assert_eq!(with(Limits::MIN.shared - 1), Some([64, 64]));
    let windows = Shape { windows: true, ..shape };
    let windows = Tiling::of(windows, &means(1 << 15));
    assert_eq!(windows.map(|tiling| tiling.tile), Some([64, 64]));
}

/// Returns the tiling of an fp16 GEMM on a device with fp16 matrix units and this subgroup size.
fn of_halves([m, n, k]: [usize; 3], octets: bool, subgroup_size: u32) -> Option<Tiling> {
    let mut features = DeviceFeatures::multiplying_halves();
    features.subgroup_size = subgroup_size;
    let shape = Shape { batches: 1, m, n, k, windows: false, octets, varies: false };
    let busy = DeviceKind::Discrete.busy_invocations();
    Tiling::of(shape, &Constraints::new([Element::F16; 2].into(), busy, &features, 48 << 10))
}

#[test]
fn products_of_one_round_have_two_subgroups_for_the_terms_of_each_part() {
    let found = |sizes, subgroup| {
        of_halves(sizes, true, subgroup).map(|it| (it.tile, it.splits, it.term_parts))
    };
    assert_eq!(found([197, 3072, 768], 32), Some(([64, 96], 1, 2)));
    assert_eq!(found([197, 2304, 768], 32), Some(([32, 128], 1, 2)));
    assert_eq!(found([197, 768, 768], 32), Some(([32, 96], 2, 2)));
    assert_eq!(found([197, 768, 3072], 32), Some(([32, 128], 3, 2)));
    assert_eq!(found([256, 768, 3072], 32), Some(([32, 96], 2, 2)));
    assert_eq!(found([197, 3072, 768], 64).map(|it| it.2), Some(1), "another subgroup size");
    assert_eq!(found([197, 3072, 256], 32).map(|it| it.2), Some(1), "few terms");
    assert_eq!(found([1024, 3072, 768], 32).map(|it| it.2), Some(1), "more than one round");
}

#[test]
fn where_rows_are_not_brought_at_once_two_subgroups_share_twice_the_terms() {
    let found = |k, subgroup| {
        of_halves([1024, 784, k], false, subgroup).map(|it| (it.terms, it.lanes, it.term_parts))
    };
    assert_eq!(found(1024, 32), Some((64, 256, 2)));
    assert_eq!(found(1024, 64), Some((32, 128, 1)));
    assert_eq!(found(64, 32), Some((32, 128, 1)));
}

#[test]
fn wide_tiles_are_taken_where_they_make_fewer_rounds() {
    let mut features = DeviceFeatures::multiplying_halves();
    features.subgroup_size = 32;
    let busy = DeviceKind::Discrete.busy_invocations();
    let means = Constraints::new([Element::F16; 2].into(), busy, &features, 48 << 10);
    let found = |sizes: [usize; 3], processors, varies, shared| {
        let [m, n, k] = sizes;
        let shape = Shape { varies, ..Shape::of([1, m, n, k]) };
        Tiling::large(shape, &Constraints { processors, shared, ..means }).map(|it| it.tile)
    };
    let of = |sizes| found(sizes, 132, false, 48 << 10);
    assert_eq!(of([4096, 4096, 4096]), Some([128, 192]), "6 rounds instead of 8");
    assert_eq!(of([1536, 4096, 4096]), Some([128, 192]), "2 instead of 3");
    assert_eq!(found([1536, 4096, 4096], 128, false, 48 << 10), Some([128; 2]), "3 of both");
    assert_eq!(of([512, 8192, 2048]), Some([128; 2]), "2 of both");
    assert_eq!(of([1024, 3072, 768]), Some([128, 192]), "all at once");
    assert_eq!(of([1024, 3072, 320]), None, "few terms");
    assert_eq!(of([4096, 2112, 1024]), Some([128, 192]), "no column of the last tiles is padding");
    assert_eq!(of([4096, 1344, 1024]), Some([128, 192]));
    assert_eq!(found([4096, 4096, 4096], 132, true, 48 << 10), Some([128; 2]), "rows vary");
    assert_eq!(found([4096, 4096, 4096], 132, false, 40 << 10), Some([128; 2]), "little memory");
    let normed =
        Tiling::normed(Shape::of([1, 4096, 4096, 4096]), &Constraints { processors: 132, ..means });
    assert_eq!(normed, None, "rows are normalised separately");
}

/// Whether the shader divides such a tile evenly: all invocations load, compute and add up the same
/// amount.
fn is_divided(it: &Tiling) -> bool {
    let lanes = it.lanes as usize;
    let [height, width] = it.tile;
    let brought = |at_once: usize| {
        it.tile.iter().all(|side| {
            let units = side * it.terms / at_once;
            units.is_multiple_of(lanes) && units / lanes <= 8
        })
    };
    let computed = match it.matrices {
        Some(_) => {
            let across = lanes / 32 / it.term_parts as usize / 2;
            let own_terms = it.terms / it.term_parts as usize;
            let (down, own) = (height / 32, width / (across * 16));
            brought(8)
                && height.is_multiple_of(32)
                && width.is_multiple_of(across * 16)
                && own_terms.is_multiple_of(16)
                && (down <= 4 && down * own <= 16)
        }
        None => {
            let rows = height * (width / 4) / lanes;
            let whole = lanes.is_multiple_of(width / 4) && rows.is_multiple_of(4);
            brought(4) && it.term_parts == 1 && whole && rows <= 32
        }
    };
    computed && (height * width / 4).is_multiple_of(lanes)
}

#[test]
fn tiles_are_divided_evenly() {
    let sides = [64, 100, 197, 512, 768, 1536, 2304, 3072];
    let terms = [128, 513, 768, 3072];
    let mut uneven = HashSet::new();
    for octets in [false, true] {
        for subgroup in [32, 64] {
            for (m, n) in sides.iter().flat_map(|m| sides.map(|n| (*m, n))) {
                for k in terms {
                    let Some(first) = of_halves([m, n, k], octets, subgroup) else { continue };
                    let shape =
                        Shape { batches: 1, m, n, k, windows: false, octets, varies: false };
                    for it in first.others(shape, 48 << 10).into_iter().chain([first]) {
                        assert!(is_divided(&it), "{it:?}");
                        if !it.tile.iter().all(|side| side.is_power_of_two()) {
                            uneven.insert((it.tile, it.splits > 1));
                        }
                    }
                }
            }
        }
    }
    assert!(uneven.contains(&([64, 96], true)), "six groups of columns: {uneven:?}");
}
