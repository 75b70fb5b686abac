//! Waits for futures, which are ready at once except in browsers.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the result of a future; the thread sleeps until it is ready.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn pending_futures_are_awaited() {
        let (waker_of, wakers) = channel::<Waker>();
        let waking = std::thread::spawn(move || {
            let waker = wakers.recv().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let mut polls = 0;
        let future = std::future::poll_fn(move |context| {
            polls += 1;
            if polls == 1 {
                waker_of.send(context.waker().clone()).unwrap();
                return Poll::Pending;
            }
            Poll::Ready(polls)
        });
        assert!(wait(future) >= 2);
        waking.join().unwrap();
    }
}
