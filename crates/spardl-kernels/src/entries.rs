//! The entries a pass finds.

/// Entries found by a pass: ascending indices with their values.
///
/// The two vectors have the same length. Passes append, so that one list can collect several blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    /// Indices, ascending within one pass.
    pub indices: Vec<u32>,
    /// `values[j]` is the value at `indices[j]`; never zero.
    pub values: Vec<f32>,
}

impl Entries {
    /// An empty list; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the entries and keeps the memory.
    pub fn clear(&mut self) {
        self.indices.clear();
        self.values.clear();
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Is there no entry?
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Makes room for `additional` more entries.
    pub fn reserve(&mut self, additional: usize) {
        self.indices.reserve(additional);
        self.values.reserve(additional);
    }

    /// Moves the entries of `other` to the end of these; `other` keeps its memory.
    pub fn append(&mut self, other: &mut Entries) {
        self.indices.append(&mut other.indices);
        self.values.append(&mut other.values);
    }

    pub(crate) fn push(&mut self, index: u32, value: f32) {
        self.indices.push(index);
        self.values.push(value);
    }
}
