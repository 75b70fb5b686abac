//! Tests that the reader rejects malformed blobs.

use super::*;
use crate::tables::table;
use alloc::string::ToString;
use alloc::vec;
use flatbuffers::FlatBufferBuilder;

/// Builds the bytes of a delegate with `values` values that share a list of `items` integers, and
/// `calls` calls of `operator`.
fn blob(values: usize, items: usize, calls: usize, operator: &str) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let numbers = b.create_vector(&vec![7i64; items]);
    let list = table(&mut b, |t| t.offset(0, numbers));
    let value = table(&mut b, |t| {
        t.scalar(0, 6u8);
        t.offset(1, list);
    });
    let value_list = b.create_vector(&vec![value; values]);
    let name = b.create_string(operator);
    let call = table(&mut b, |t| t.offset(1, name));
    let chain = b.create_vector(&vec![call; calls]);
    let root = table(&mut b, |t| {
        t.offset(1, chain);
        t.offset(2, value_list);
    });
    b.finish(root, Some("VK00"));
    let graph = b.finished_data();
    let (header, size) = (30u32, graph.len() as u32);
    let mut bytes = b"\0\0\0\0VH00\0\0".to_vec();
    bytes.extend(header.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend((header + size).to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(graph);
    bytes
}

#[test]
fn what_is_shared_is_refused() {
    assert_eq!(read(&blob(1, 1000, 0, ""), &|_| Ok(None)).unwrap().values.len(), 1);
    let error = read(&blob(1000, 1000, 0, ""), &|_| Ok(None)).unwrap_err();
    assert!(error.to_string().contains("overlap"), "{error}");
    let long = "x".repeat(1000);
    let error = read(&blob(0, 0, 1, &long), &|_| Ok(None)).unwrap_err();
    assert!(error.to_string().contains(&long), "{error}");
    let calls = blob(0, 0, 1000, &long);
    let error = read(&calls, &|_| Ok(None)).unwrap_err();
    assert!(error.to_string().contains("overlap"), "{error}");
    assert!(summarize(&calls).is_err());
}

#[test]
fn calls_without_numbers_of_their_own_get_some() {
    let numbers = |ids: [u32; 3]| {
        let mut nodes = ids.map(|id| Node { id, ..Node::new(Operator::CLONE, Vec::new()) });
        number_unnumbered(&mut nodes);
        nodes.map(|node| node.id)
    };
    assert_eq!(numbers([0, 0, 0]), [0, 1, 2]);
    assert_eq!(numbers([4, 4, 4]), [0, 1, 2]);
    assert_eq!(numbers([4, 4, 7]), [4, 4, 7]);
}
