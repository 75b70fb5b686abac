//! Round trips, and rejection of damaged files.

use super::{DelegateIds, ReadError, read, write};
use crate::recorder::Recorder;
use crate::recording::{Event, Kind, Location, Recording, Run, RunKind, ValueKind, ValueRecord};
use torchlet_core::{
    Allocation, DelegateClock, DelegateEvent, EventKind, EventTracer, OutputValue, Scalar,
    ScalarType, TensorRef,
};

/// A load and two runs of a kernel and a delegate, with parts on the host and on a device.
fn recorded() -> Recording {
    recorded_by(Recorder::new().with_values(1 << 12))
}

fn recorded_by(recorder: Recorder) -> Recording {
    let event = |kind, name, instruction| torchlet_core::Event { kind, name, instruction };
    let within = |event: &torchlet_core::Event<'_>, body: &dyn Fn()| {
        let token = recorder.begin(event);
        body();
        recorder.end(event, token);
    };
    let part = |name, id, start, metadata: &[u8]| {
        let (end, nanoseconds_per_tick) = (start + 10, (3, 2));
        let is_host = metadata == b"host";
        let clock = if is_host { DelegateClock::Host } else { DelegateClock::DeviceAlone };
        recorder.delegate_event(&DelegateEvent {
            name,
            id,
            start,
            end,
            nanoseconds_per_tick,
            clock,
            metadata,
        });
    };
    within(&event(EventKind::Load, "forward", 0), &|| {
        for (allocator, bytes) in [("arena", 640), ("planned memory", 96), ("arena", 64)] {
            recorder.allocated(&Allocation { allocator, bytes });
        }
        within(&event(EventKind::DelegateInit, "Gpu", 0), &|| part("compile", 0, 0, b""));
    });
    for _ in 0..2 {
        let run = event(EventKind::Execute, "forward", 0);
        within(&run, &|| {
            let add = event(EventKind::Operator, "aten::add.out", 3);
            within(&add, &|| {});
            let sum = TensorRef::from_slice(&[2, 1], &[1.5f32, -2.0]).unwrap();
            recorder.output(&add, 2, &OutputValue::Tensor(&sum));
            within(&event(EventKind::Delegate, "Gpu", 4), &|| {
                part("submit and wait", 1, 4, b"host");
                part("matmul tiled", 7, 0, b"[2, 1]");
            });
        });
        let tensor = TensorRef::from_slice(&[1], &[7i64]).unwrap();
        recorder.output(&run, 0, &OutputValue::Tensor(&tensor));
    }
    recorder.recording()
}

fn names(events: &[Event]) -> Vec<(Kind, &str, Option<u32>, Option<u32>)> {
    events.iter().map(|it| (it.kind, it.name.as_str(), it.instruction, it.part)).collect()
}

#[test]
fn recordings_round_trip() {
    let recording = recorded();
    assert_eq!(recording.runs.len(), 3);
    for ids in [DelegateIds::Names, DelegateIds::Numbers] {
        let bytes = write(&recording, ids);
        assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_le_bytes());
        let back = read(&bytes, recording.buffer.clone()).unwrap();
        // The size prefix is optional.
        assert_eq!(read(&bytes[4..], recording.buffer.clone()).unwrap(), back);
        assert_eq!(back.runs[0].kind, RunKind::Load);
        assert!(back.runs[0].allocations.is_empty(), "the stock Inspector refuses dumps with them");
        let expected = [
            (Kind::DelegateInitPart, "compile", None, Some(0)),
            (Kind::DelegateInit, "Gpu::init", None, None),
            (Kind::Load, "Method::init", None, None),
        ];
        assert_eq!(names(&back.runs[0].events), expected);
        let expected = [
            (Kind::Operator, "add.out", Some(3), None),
            (Kind::DelegatePart, "submit and wait", Some(4), Some(1)),
            (Kind::DelegatePart, "matmul tiled", Some(4), Some(7)),
            (Kind::Delegate, "DELEGATE_CALL", Some(4), None),
            (Kind::Execute, "Method::execute", None, None),
        ];
        for (run, own) in back.runs[1..].iter().zip(&recording.runs[1..]) {
            assert_eq!((run.kind, names(&run.events)), (RunKind::Execute, expected.to_vec()));
            let times = |events: &[Event]| -> Vec<_> {
                events.iter().map(|it| (it.start, it.end, it.detail.clone())).collect()
            };
            assert_eq!(times(&run.events), times(&own.events));
            let places: Vec<_> =
                run.values.iter().map(|it| (it.instruction, &it.sizes[..])).collect();
            assert_eq!(places, [(Some(3), &[2, 1][..]), (None, &[1][..])]);
            let bytes = back.bytes(&run.values[0]).unwrap();
            assert_eq!(bytes, [1.5f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat());
            assert_eq!(back.bytes(&run.values[1]).unwrap(), 7i64.to_le_bytes());
        }
    }
}

#[test]
fn device_work_overlaps_the_wait() {
    let recording = recorded();
    for run in &recording.runs[1..] {
        let [wait, work] = [1, 2].map(|at| &run.events[at]);
        assert_eq!(wait.location, Location::Host(0));
        assert_eq!((work.location, work.nanoseconds()), (Location::Device, 15));
        assert_eq!(work.start, wait.start);
        let call = &run.events[3];
        assert!(call.start <= wait.start, "{call:?} {wait:?}");
    }
}

#[test]
fn value_memory_is_bounded() {
    let recorder = Recorder::new().with_values(70);
    let run = torchlet_core::Event { kind: EventKind::Execute, name: "forward", instruction: 0 };
    recorder.end(&run, recorder.begin(&run));
    for _ in 0..3 {
        let tensor = TensorRef::from_slice(&[3], &[1u8, 2, 3]).unwrap();
        recorder.output(&run, 0, &OutputValue::Tensor(&tensor));
    }
    let recording = recorder.take();
    assert_eq!((recording.runs[0].values.len(), recording.dropped_values), (2, 1));
    assert_eq!(recorder.recording(), Recording::default());
}

#[test]
fn scalars_and_lists_round_trip() {
    let recorder = Recorder::new().with_values(1 << 12);
    let run = torchlet_core::Event { kind: EventKind::Execute, name: "forward", instruction: 0 };
    let call = torchlet_core::Event { kind: EventKind::Operator, name: "a", instruction: 5 };
    recorder.end(&run, recorder.begin(&run));
    let parts = [[1f32, 2.0], [3.0, 4.0]];
    let parts = parts.each_ref().map(|part| TensorRef::from_slice(&[2], part).unwrap());
    // Two lists of one call, and scalars of others.
    for arg in [3, 4] {
        for (position, part) in parts.iter().enumerate() {
            recorder.output(&call, arg, &OutputValue::Item(position, part));
        }
    }
    let numbers = [Scalar::Int(-7), Scalar::Bool(true), Scalar::Double(0.1)];
    for number in numbers {
        recorder.output(&call, 6, &OutputValue::Scalar(number));
    }
    recorder.output(&run, 0, &OutputValue::Scalar(Scalar::Int(9)));
    let recording = recorder.take();
    // Tensors come from the debug buffer, scalars from the dump.
    let back = read(&write(&recording, DelegateIds::Names), recording.buffer.clone()).unwrap();
    let kinds: Vec<_> = back.runs[0].values.iter().map(|it| (it.instruction, it.kind)).collect();
    let (list, number) = ([ValueKind::Item(0), ValueKind::Item(1)], ValueKind::Scalar);
    let expected = list.iter().chain(&list).copied().chain([number; 3]);
    let mut expected: Vec<_> = expected.map(|kind| (Some(5), kind)).collect();
    expected.push((None, number));
    assert_eq!(kinds, expected);
    for (value, own) in back.runs[0].values.iter().zip(&recording.runs[0].values) {
        assert_eq!((value.kind, value.scalar_type), (own.kind, own.scalar_type));
        assert_eq!(back.bytes(value).unwrap(), recording.bytes(own).unwrap());
    }
    let value = &recording.runs[0].values[6];
    assert_eq!(recording.bytes(value).unwrap(), 0.1f64.to_le_bytes());
    let places: Vec<_> = back.runs[0].values.iter().map(|value| value.position).collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 0]);
}

#[test]
fn values_are_row_major() {
    let mut info = TensorRef::from_slice(&[1, 2, 1, 2], &[0f32; 4]).unwrap().info().clone();
    info.dim_order = torchlet_core::layout::channels_last_order(4).unwrap();
    let elements = [1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    let tensor = TensorRef::new(info, &elements).unwrap();
    let recorder = Recorder::new().with_values(100);
    let run = torchlet_core::Event { kind: EventKind::Execute, name: "forward", instruction: 0 };
    recorder.end(&run, recorder.begin(&run));
    recorder.output(&run, 0, &OutputValue::Tensor(&tensor));
    // Channels-last tensors are recorded in row-major order.
    assert_eq!(recorder.recording().buffer, [1f32, 3.0, 2.0, 4.0].map(f32::to_le_bytes).concat());
}

#[test]
fn damaged_dumps_are_rejected() {
    let recording = recorded();
    let bytes = write(&recording, DelegateIds::Names);
    assert_eq!(read(b"", Vec::new()), Err(ReadError::NotADump));
    assert_eq!(read(&[0; 64], Vec::new()), Err(ReadError::NotADump));
    assert!(matches!(read(&bytes[..60], Vec::new()), Err(ReadError::Truncated { .. })));
    // Values outside of the debug buffer are dropped.
    assert!(read(&bytes, Vec::new()).unwrap().runs.iter().all(|run| run.values.is_empty()));
    let mut refused = 0;
    for place in 0..bytes.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[place] ^= change;
            refused += usize::from(read(&damaged, recording.buffer.clone()).is_err());
        }
        refused +=
            usize::from(read(&bytes[4..][..place.min(bytes.len() - 4)], Vec::new()).is_err());
    }
    assert!(refused > bytes.len() / 2, "{refused}");
}

#[test]
fn overlapping_values_are_rejected() {
    let value = |start| ValueRecord {
        instruction: Some(1),
        part: None,
        name: String::new(),
        position: 0,
        kind: ValueKind::Tensor,
        scalar_type: ScalarType::Float,
        sizes: vec![4],
        data: start..start + 16,
    };
    let dump = |starts: &[usize]| {
        let mut run = Run::new(RunKind::Execute, "Execute");
        run.values = starts.iter().map(|start| value(*start)).collect();
        let recording = Recording { runs: vec![run], ..Recording::default() };
        read(&write(&recording, DelegateIds::Names), vec![0; 64])
    };
    assert_eq!(dump(&[0, 16, 32, 48]).unwrap().runs[0].values.len(), 4);
    assert_eq!(dump(&[0; 5]), Err(ReadError::TooMuch));
}

/// A dump with allocations of allocator 1, which has a name, and of allocators that do not exist.
fn dump_of_memory(name: &str, allocators: &[i32]) -> Vec<u8> {
    use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};
    type Table = WIPOffset<TableFinishedWIPOffset>;
    let mut b = FlatBufferBuilder::new();
    let name = b.create_string(name);
    let start = b.start_table();
    b.push_slot_always(4, name);
    let allocator: Table = b.end_table(start);
    let mut event = |number: i32| {
        let start = b.start_table();
        b.push_slot_always(4, number);
        b.push_slot_always(6, 96u64);
        let allocation = b.end_table(start);
        let start = b.start_table();
        b.push_slot_always(6, allocation);
        b.end_table(start)
    };
    let events: Vec<Table> = allocators.iter().map(|number| event(*number)).collect();
    let (allocators, events) = (b.create_vector(&[allocator]), b.create_vector(&events));
    let start = b.start_table();
    b.push_slot_always(8, allocators);
    b.push_slot_always(10, events);
    let run: Table = b.end_table(start);
    let runs = b.create_vector(&[run]);
    let start = b.start_table();
    b.push_slot_always(6, runs);
    let root = b.end_table(start);
    b.finish(root, Some("ED00"));
    b.finished_data().to_vec()
}

#[test]
fn allocations_of_other_runtimes_are_read() {
    let back = read(&dump_of_memory("method allocator", &[1, 7]), Vec::new()).unwrap();
    let found: Vec<_> =
        back.runs[0].allocations.iter().map(|it| (it.allocator.as_str(), it.bytes)).collect();
    assert_eq!(found, [("method allocator", 96), ("", 96)]);
}

#[test]
fn long_allocator_names_are_charged_each_time() {
    let long = "a".repeat(1 << 16);
    assert!(read(&dump_of_memory(&long, &[7; 1000]), Vec::new()).is_ok());
    assert_eq!(read(&dump_of_memory(&long, &[1; 1000]), Vec::new()), Err(ReadError::TooMuch));
}

#[test]
fn recording_can_be_reduced() {
    let all = recorded();
    let methods = recorded_by(Recorder::new().with_values(1 << 12).of_methods().of_outputs());
    for (less, all) in methods.runs.iter().zip(&all.runs) {
        let whole = |events: &[Event]| {
            events.iter().filter(|it| matches!(it.kind, Kind::Load | Kind::Execute)).count()
        };
        assert_eq!((less.events.len(), whole(&less.events)), (1, whole(&all.events)));
        let outputs = all.values.iter().filter(|value| value.instruction.is_none()).count();
        assert_eq!(less.values.len(), outputs);
        assert!(less.values.len() <= all.values.len());
    }
    assert!(methods.buffer.len() < all.buffer.len());
}
