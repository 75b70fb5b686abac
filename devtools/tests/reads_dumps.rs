//! Reads a dump of ExecuTorch's runtime, written by `dumps/make.py`.

use torchlet_devtools::{Kind, Profile, etdump};

const DUMP: &[u8] = include_bytes!("dumps/executorch.etdp");
const VALUES: &[u8] = include_bytes!("dumps/executorch.bin");

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn events_and_values_match_the_model() {
    let recording = etdump::read(DUMP, VALUES.to_vec()).unwrap();
    let runs: Vec<_> = recording.executions().collect();
    assert_eq!(runs.len(), 2);
    let mut events = recording.runs.iter().flat_map(|run| &run.events);
    assert!(events.any(|event| event.kind == Kind::Load));
    for run in &runs {
        let kernels = run.events.iter().filter(|event| event.kind == Kind::Operator);
        let names: Vec<&str> = kernels.clone().map(|event| &*event.name).collect();
        assert_eq!(names, ["add.out", "relu.out", "sum.IntList_out"]);
        assert!(kernels.clone().all(|event| event.end >= event.start && event.start > 0));
        assert_eq!(
            kernels.map(|event| event.instruction).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
        // [[1, -4], [2, 3]] plus one, its ReLU, and the sums of rows.
        let of = |instruction| {
            let value = run.values.iter().find(|value| value.instruction == instruction);
            numbers(recording.bytes(value.unwrap()).unwrap())
        };
        assert_eq!(of(Some(0)), [2.0, -3.0, 3.0, 4.0]);
        assert_eq!(of(Some(1)), [2.0, 0.0, 3.0, 4.0]);
        assert_eq!(of(Some(2)), [2.0, 7.0]);
    }
    let profile = Profile::of(&recording, 0);
    assert_eq!((profile.runs.len(), profile.rows.len()), (2, 3));
    assert!(profile.total().p50 > 0.0);
}

#[test]
fn damaged_dumps_do_not_panic() {
    let mut refused = 0;
    for place in 0..DUMP.len() {
        for change in [0x01, 0x40, 0xFF] {
            let mut damaged = DUMP.to_vec();
            damaged[place] ^= change;
            refused += usize::from(etdump::read(&damaged, VALUES.to_vec()).is_err());
        }
        refused += usize::from(etdump::read(&DUMP[..place], Vec::new()).is_err());
    }
    assert!(refused > DUMP.len(), "{refused}");
}
