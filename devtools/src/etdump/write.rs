//! Writes ETDumps.

use super::{kinds, names};
use crate::recording::{Event, Kind, Location, Recording, Run, ValueKind, ValueRecord};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};
use std::collections::HashSet;
use torchlet_core::ScalarType;

/// Identifiers of delegate parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DelegateIds {
    /// Names with a numeric suffix, as in ExecuTorch's Vulkan delegate: readable in tables.
    #[default]
    Names,
    /// The exporter's numbers, which an ETRecord maps to nodes of the exported graph.
    Numbers,
}

type Table = WIPOffset<TableFinishedWIPOffset>;

/// Vtable offset of field `number`.
const fn field(number: u16) -> u16 {
    4 + 2 * number
}

/// Serializes a recording as a size-prefixed ETDump. The bytes of values are in the recording's
/// buffer, which is a separate file.
pub fn write(recording: &Recording, ids: DelegateIds) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let runs: Vec<Table> =
        recording.runs.iter().map(|run| write_run(&mut builder, recording, run, ids)).collect();
    let runs = builder.create_vector(&runs);
    let table = builder.start_table();
    // Schema version 0.
    builder.push_slot_always(field(0), 0u32);
    builder.push_slot_always(field(1), runs);
    let table = builder.end_table(table);
    builder.finish_size_prefixed(table, Some("ED00"));
    builder.finished_data().to_vec()
}

fn write_run(
    builder: &mut FlatBufferBuilder<'_>,
    recording: &Recording,
    run: &Run,
    ids: DelegateIds,
) -> Table {
    let mut events = Vec::new();
    for event in &run.events {
        write_event(builder, event, ids, &mut events);
    }
    let lists = run.values.chunk_by(follows);
    let calls = run.events.iter().filter(|it| matches!(it.kind, Kind::Operator | Kind::Delegate));
    let with_events: HashSet<Option<u32>> = calls.map(|event| event.instruction).collect();
    events.extend(lists.map(|values| write_values(builder, recording, &with_events, values, ids)));
    // Allocations are omitted: ExecuTorch's Inspector rejects dumps that contain them.
    let allocators = builder.create_vector::<Table>(&[]);
    let events = builder.create_vector(&events);
    let name = builder.create_shared_string(&run.name);
    let table = builder.start_table();
    builder.push_slot_always(field(0), name);
    builder.push_slot(field(1), run.test_case.map_or(-1, int), -1i32);
    builder.push_slot_always(field(2), allocators);
    builder.push_slot_always(field(3), events);
    builder.end_table(table)
}

fn int(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(-1)
}

/// Writes an event. For an operator, ExecuTorch has an event for the call and one for the kernel in
/// it, named without its namespace.
fn write_event(
    builder: &mut FlatBufferBuilder<'_>,
    event: &Event,
    ids: DelegateIds,
    written: &mut Vec<Table>,
) {
    let instruction = event.instruction;
    let mut profile = |name: &str, instruction| {
        written.push(write_profile(builder, event, name, instruction, ids));
    };
    match event.kind {
        Kind::Operator => {
            let kernel = event.name.rsplit("::").next().unwrap_or(&event.name);
            profile(&format!("{}{kernel}", names::CALL), instruction);
            profile(names::OPERATOR, instruction);
        }
        Kind::Delegate => profile(names::DELEGATE, instruction),
        // Events before execution have no instruction.
        Kind::DelegateInit => profile(&format!("{}{}", event.name, names::DELEGATE_INIT), None),
        Kind::DelegateInitPart => profile(&event.name, None),
        Kind::Load => profile(names::INIT, None),
        Kind::Execute => profile(names::EXECUTE, None),
        Kind::DelegatePart | Kind::Other => profile(&event.name, instruction),
    }
}

/// Identifier of a part: its number, or its name with the number.
type Id<'b> = (i32, Option<WIPOffset<&'b str>>);

fn delegate_id<'b>(
    builder: &mut FlatBufferBuilder<'b>,
    part: Option<u32>,
    name: &str,
    ids: DelegateIds,
) -> Id<'b> {
    match (part, ids) {
        (None, _) => (-1, None),
        (Some(part), DelegateIds::Numbers) => (int(part), None),
        (Some(part), DelegateIds::Names) => {
            (-1, Some(builder.create_shared_string(&format!("{name}_{part}"))))
        }
    }
}

fn write_profile(
    builder: &mut FlatBufferBuilder<'_>,
    event: &Event,
    name: &str,
    instruction: Option<u32>,
    ids: DelegateIds,
) -> Table {
    // Host work in a delegate has no number from the exporter.
    let ids = if event.location == Location::Device { ids } else { DelegateIds::Names };
    let (number, text) = delegate_id(builder, event.part, name, ids);
    let name = builder.create_shared_string(name);
    let metadata = (!event.detail.is_empty()).then(|| builder.create_vector(&event.detail));
    let profile = builder.start_table();
    builder.push_slot_always(field(0), name);
    builder.push_slot(field(1), 0i32, 0);
    builder.push_slot(field(2), instruction.map_or(-1, int), -1);
    builder.push_slot(field(3), number, -1);
    if let Some(text) = text {
        builder.push_slot_always(field(4), text);
    }
    if let Some(metadata) = metadata {
        builder.push_slot_always(field(5), metadata);
    }
    builder.push_slot_always(field(6), event.start);
    builder.push_slot_always(field(7), event.end);
    let profile = builder.end_table(profile);
    let table = builder.start_table();
    builder.push_slot_always(field(0), profile);
    builder.end_table(table)
}

/// Whether two values are consecutive items of a list.
fn follows(value: &ValueRecord, next: &ValueRecord) -> bool {
    let slot = |value: &ValueRecord| (value.instruction, value.part, value.position);
    match (value.kind, next.kind) {
        (ValueKind::Item(at), ValueKind::Item(behind)) => {
            slot(value) == slot(next) && at.checked_add(1) == Some(behind)
        }
        _ => false,
    }
}

fn write_tensor(builder: &mut FlatBufferBuilder<'_>, value: &ValueRecord) -> Table {
    let sizes = builder.create_vector(&value.sizes);
    let strides = builder.create_vector(&strides_of(&value.sizes));
    let tensor = builder.start_table();
    builder.push_slot_always(field(0), value.scalar_type as i8);
    builder.push_slot_always(field(1), sizes);
    builder.push_slot_always(field(2), strides);
    builder.push_slot_always(field(3), value.data.start as i64);
    builder.end_table(tensor)
}

/// Type tag of a value, the field of its table in an entry, and the table.
fn write_contents(
    builder: &mut FlatBufferBuilder<'_>,
    recording: &Recording,
    values: &[ValueRecord],
    value: &ValueRecord,
) -> (i8, u16, Table) {
    let bytes = recording.bytes(value).unwrap_or_default();
    let eight = || bytes.first_chunk().copied().unwrap_or_default();
    match (value.kind, value.scalar_type) {
        (ValueKind::Tensor, _) => (kinds::TENSOR, field(1), write_tensor(builder, value)),
        (ValueKind::Item(_), _) => {
            let tensors: Vec<Table> =
                values.iter().map(|value| write_tensor(builder, value)).collect();
            let tensors = builder.create_vector(&tensors);
            let list = builder.start_table();
            builder.push_slot_always(field(0), tensors);
            (kinds::TENSOR_LIST, field(2), builder.end_table(list))
        }
        (ValueKind::Scalar, ScalarType::Bool) => {
            let table = builder.start_table();
            builder.push_slot_always(field(0), bytes.first().is_some_and(|byte| *byte != 0));
            (kinds::BOOL, field(6), builder.end_table(table))
        }
        (ValueKind::Scalar, ScalarType::Double) => {
            let table = builder.start_table();
            builder.push_slot_always(field(0), f64::from_le_bytes(eight()));
            (kinds::DOUBLE, field(5), builder.end_table(table))
        }
        (ValueKind::Scalar, _) => {
            let table = builder.start_table();
            builder.push_slot_always(field(0), i64::from_le_bytes(eight()));
            (kinds::INT, field(3), builder.end_table(table))
        }
    }
}

/// Whether a value needs a name. The Inspector names events after their values, if these have
/// names.
fn is_named(with_events: &HashSet<Option<u32>>, value: &ValueRecord) -> bool {
    !value.name.is_empty() && (value.part.is_some() || !with_events.contains(&value.instruction))
}

/// Writes a value, or the tensors of a list. `with_events` are the instructions that have events.
fn write_values(
    builder: &mut FlatBufferBuilder<'_>,
    recording: &Recording,
    with_events: &HashSet<Option<u32>>,
    values: &[ValueRecord],
    ids: DelegateIds,
) -> Table {
    // Groups are never empty.
    let value = &values[0];
    let (kind, slot, contents) = write_contents(builder, recording, values, value);
    let output = builder.start_table();
    builder.push_slot_always(field(0), value.instruction.is_none());
    let output = builder.end_table(output);
    let entry = builder.start_table();
    builder.push_slot_always(field(0), kind);
    builder.push_slot_always(slot, contents);
    builder.push_slot_always(field(7), output);
    let entry = builder.end_table(entry);
    let (number, text) = delegate_id(builder, value.part, &value.name, ids);
    let name = is_named(with_events, value).then(|| builder.create_shared_string(&value.name));
    let debug = builder.start_table();
    builder.push_slot(field(0), 0u64, 0);
    builder.push_slot(field(1), value.instruction.map_or(-1, int), -1);
    builder.push_slot_always(field(2), entry);
    builder.push_slot(field(3), number, -1);
    if let Some(text) = text {
        builder.push_slot_always(field(4), text);
    }
    if let Some(name) = name {
        builder.push_slot_always(field(5), name);
    }
    let debug = builder.end_table(debug);
    let table = builder.start_table();
    builder.push_slot_always(field(2), debug);
    builder.end_table(table)
}

/// Row-major strides.
fn strides_of(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(sizes[dim].max(1));
    }
    strides
}
