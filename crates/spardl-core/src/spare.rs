//! Memory of messages, for the messages after them.
//!
//! Fresh memory costs a fault per page, which takes longer than to write the page. So what a message lay in is kept, by the thread that was
//! last to use it: every worker sends about as much as it receives.

use std::cell::RefCell;

/// Shorter messages are cheap to allocate.
const WORTH_KEEPING: usize = 64 << 10;
/// How much memory may lie idle, per thread.
const MAX_BYTES: usize = 128 << 20;
/// A spare serves messages down to this part of its size, so that a short one does not hold a long buffer.
const WASTE: usize = 4;

thread_local! {
    static SPARES: RefCell<BufferPool> = RefCell::default();
}

/// An empty buffer with room for `len` bytes.
pub(crate) fn take(len: usize) -> Vec<u8> {
    let spare = SPARES.try_with(|spares| spares.borrow_mut().take(len));
    spare.unwrap_or_else(|_| Vec::with_capacity(len))
}

/// Keeps a buffer that is not needed any more, if that is worth it.
pub(crate) fn keep(buffer: Vec<u8>) {
    // When the thread ends, its spares may be gone before its messages: then this one goes too.
    let _ = SPARES.try_with(|spares| spares.borrow_mut().keep(buffer));
}

/// Buffers that wait for their next use; a transport has its own for the messages it receives.
#[derive(Debug, Default)]
pub struct BufferPool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    /// Keeps a buffer if that is worth it.
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes < WORTH_KEEPING || bytes > MAX_BYTES - self.bytes {
            return;
        }
        buffer.clear();
        self.bytes += bytes;
        self.buffers.push(buffer);
    }

    /// An empty buffer with room for `len` bytes: the smallest spare that is neither too short nor far too long, or a new one.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let fits = len..=len.saturating_mul(WASTE);
        let fitting = self.buffers.iter().enumerate();
        let fitting = fitting.filter(|(_, buffer)| fits.contains(&buffer.capacity()));
        match fitting.min_by_key(|(_, buffer)| buffer.capacity()) {
            None => Vec::with_capacity(len),
            Some((at, buffer)) => {
                self.bytes -= buffer.capacity();
                self.buffers.swap_remove(at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_gets_the_smallest_spare_that_is_neither_too_short_nor_far_too_long() {
        let mut spares = BufferPool::default();
        for len in [WORTH_KEEPING - 1, 2 * WORTH_KEEPING, WORTH_KEEPING] {
            spares.keep(vec![1; len]);
        }
        assert_eq!(spares.bytes, 3 * WORTH_KEEPING);
        assert!(spares.take(100).capacity() < WORTH_KEEPING);
        assert_eq!(spares.take(WORTH_KEEPING / 2).capacity(), WORTH_KEEPING);
        let spare = spares.take(WORTH_KEEPING);
        assert!(spare.is_empty());
        assert_eq!(spare.capacity(), 2 * WORTH_KEEPING);
        assert_eq!(spares.bytes, 0);
        let fresh = spares.take(WORTH_KEEPING);
        assert!(fresh.is_empty() && fresh.capacity() >= WORTH_KEEPING);
    }

    #[test]
    fn no_more_than_a_share_of_memory_lies_idle() {
        let mut spares = BufferPool::default();
        for _ in 0..3 {
            spares.keep(Vec::with_capacity(MAX_BYTES / 2));
        }
        assert_eq!((spares.buffers.len(), spares.bytes), (2, MAX_BYTES));
    }
}
