//! A cursor over received bytes.

use crate::error::DecodeError;

/// A cursor over a received body.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The bytes not read yet, which stay so.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next byte.
    ///
    /// # Errors
    /// At the end of the bytes, here and below.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next four bytes as a little-endian number.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes as a little-endian number.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// If fewer are left; none are read then.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, _) = self.bytes[self.at..]
            .split_at_checked(n)
            .ok_or(self.truncated(n))?;
        self.at += n;
        Ok(bytes)
    }

    /// Asserts that everything was read.
    ///
    /// # Errors
    /// If bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.bytes[self.at..]
            .first_chunk()
            .ok_or(self.truncated(N))?;
        self.at += N;
        Ok(*bytes)
    }

    fn truncated(&self, n: usize) -> DecodeError {
        DecodeError::Truncated {
            needed: (self.at as u64).saturating_add(n as u64),
            got: self.bytes.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_counts_what_is_left() {
        let bytes: Vec<u8> = (1..=14).collect();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u32(), Ok(0x0504_0302));
        assert_eq!(reader.u64(), Ok(0x0d0c_0b0a_0908_0706));
        assert_eq!(reader.remaining(), 1);
        assert_eq!(
            reader.u32(),
            Err(DecodeError::Truncated {
                needed: 17,
                got: 14
            })
        );
        assert_eq!(
            reader.bytes(usize::MAX),
            Err(DecodeError::Truncated {
                needed: u64::MAX,
                got: 14
            })
        );
        assert_eq!(reader.clone().finish(), Err(DecodeError::Trailing(1)));
        assert_eq!(reader.bytes(1), Ok(&[14][..]));
        assert_eq!(reader.bytes(0), Ok(&[][..]));
        assert_eq!(reader.finish(), Ok(()));
    }
}
