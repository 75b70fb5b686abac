//! Placing tensors in one buffer, so that those that are not needed at the same time share memory.

/// A tensor to place: its bytes, and the first and last step that use it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) bytes: u64,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// An offset for each request, and the bytes in all. Largest first, each at the lowest offset that is free for as long as
/// it lives.
pub(crate) fn place(requests: &[Request], align: u64) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(requests[*index].bytes));
    let mut offsets = vec![0u64; requests.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for index in order {
        let request = requests[index];
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| {
                requests[**other].first <= request.last && request.first <= requests[**other].last
            })
            .map(|other| (offsets[*other], offsets[*other] + requests[*other].bytes))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if offset + request.bytes <= start {
                break;
            }
            offset = offset.max(end.next_multiple_of(align));
        }
        offsets[index] = offset;
        total = total.max(offset + request.bytes);
        placed.push(index);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_live_together_do_not_overlap() {
        let requests: Vec<Request> = (0..40)
            .map(|i: usize| Request {
                bytes: 16 + (i as u64 * 37) % 300,
                first: i / 2,
                last: i / 2 + i % 5,
            })
            .collect();
        let (offsets, total) = place(&requests, 64);
        for (i, a) in requests.iter().enumerate() {
            assert!(offsets[i] % 64 == 0 && offsets[i] + a.bytes <= total);
            for (j, b) in requests.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let apart =
                    offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                assert!(!together || apart, "{i} {j}");
            }
        }
    }

    #[test]
    fn memory_is_reused() {
        let chain: Vec<Request> =
            (0..10).map(|i| Request { bytes: 100, first: i, last: i + 1 }).collect();
        assert!(place(&chain, 4).1 <= 208);
    }
}
