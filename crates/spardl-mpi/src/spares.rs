//! Buffers of messages that were sent or read, for messages to receive: fresh memory costs more than such a message.

/// Shorter messages are cheap to allocate.
const WORTH_KEEPING: usize = 64 << 10;
/// How much memory may lie idle.
const MAX_BYTES: usize = 128 << 20;
/// A spare serves messages down to this part of its size, so that a short one does not hold a long buffer.
const WASTE: usize = 4;

/// Buffers that wait for their next use.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// Keeps a buffer if it is worth it.
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes < WORTH_KEEPING || bytes > MAX_BYTES - self.bytes {
            return;
        }
        buffer.clear();
        self.bytes += bytes;
        self.buffers.push(buffer);
    }

    /// An empty buffer with room for `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let fits =
            |buffer: &Vec<u8>| (len..=len.saturating_mul(WASTE)).contains(&buffer.capacity());
        let sizes = self.buffers.iter().enumerate().filter(|(_, b)| fits(b));
        match sizes.min_by_key(|(_, buffer)| buffer.capacity()) {
            None => Vec::with_capacity(len),
            Some((position, buffer)) => {
                self.bytes -= buffer.capacity();
                self.buffers.swap_remove(position)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_gets_the_smallest_spare_that_is_neither_too_short_nor_far_too_long() {
        let mut spares = Spares::default();
        for len in [WORTH_KEEPING - 1, WORTH_KEEPING, 2 * WORTH_KEEPING] {
            spares.keep(vec![1; len]);
        }
        assert_eq!(spares.bytes, 3 * WORTH_KEEPING);
        assert!(spares.take(100).capacity() < WORTH_KEEPING);
        assert_eq!(spares.take(WORTH_KEEPING / 2).capacity(), WORTH_KEEPING);
        assert_eq!(spares.take(WORTH_KEEPING).capacity(), 2 * WORTH_KEEPING);
        assert_eq!(spares.bytes, 0);
        let fresh = spares.take(WORTH_KEEPING);
        assert!(fresh.is_empty() && fresh.capacity() >= WORTH_KEEPING);
    }

    #[test]
    fn idle_memory_is_bounded() {
        let mut spares = Spares::default();
        for _ in 0..3 {
            spares.keep(Vec::with_capacity(MAX_BYTES / 2));
        }
        assert_eq!(spares.buffers.len(), 2);
    }
}
