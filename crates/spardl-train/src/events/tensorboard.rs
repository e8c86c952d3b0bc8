//! Scalars for TensorBoard.
//!
//! An event file is a row of records (length, its checksum, payload, its checksum), each payload an `Event` in Protocol Buffers.
//! Of that message scalars need six fields, written here by hand: the crates that write all of it bring 35 others with them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use super::EventsError;
use crate::store::disk;

/// An event file in a directory that TensorBoard is pointed at (`tensorboard --logdir DIR`).
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: BufWriter<File>,
}

impl TensorBoard {
    /// A new event file in `dir`, which is made when missing. TensorBoard shows nothing of older files beside it: a run that goes on
    /// writes its past again.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn create(dir: &Path) -> Result<Self, EventsError> {
        disk::create_dir(dir)?;
        let now = seconds();
        let (path, file) =
            new_file(dir, now).map_err(|e| disk::error("create a file in", dir, e))?;
        let file = BufWriter::new(file);
        let mut board = Self { path, file };
        // Readers expect this one first.
        let mut event = Message::event(now, 0);
        event.bytes(FILE_VERSION, b"brain.Event:2");
        board.write(&event)?;
        let mut session = Message::default();
        session.varint(STATUS, START);
        let mut event = Message::event(now, 0);
        event.bytes(SESSION_LOG, &session.0);
        board.write(&event)?;
        board.flush()?;
        Ok(board)
    }

    /// Adds a value. It is seen after the next [`TensorBoard::flush`], or when the buffer is full.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f32) -> Result<(), EventsError> {
        let mut scalar = Message::default();
        scalar.bytes(TAG, tag.as_bytes());
        scalar.fixed32(SIMPLE_VALUE, value.to_bits());
        let mut summary = Message::default();
        summary.bytes(VALUE, &scalar.0);
        let mut event = Message::event(seconds(), step);
        event.bytes(SUMMARY, &summary.0);
        self.write(&event)
    }

    /// Hands all values to the system.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn flush(&mut self) -> Result<(), EventsError> {
        let flushed = self.file.flush();
        Ok(flushed.map_err(|source| disk::error("write", &self.path, source))?)
    }

    /// The event file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, event: &Message) -> Result<(), EventsError> {
        let written = write_record(&mut self.file, &event.0);
        Ok(written.map_err(|source| disk::error("write", &self.path, source))?)
    }
}

// The field numbers of Event, SessionLog, Summary and Summary.Value.
const WALL_TIME: u64 = 1;
const STEP: u64 = 2;
const FILE_VERSION: u64 = 3;
const SUMMARY: u64 = 5;
const SESSION_LOG: u64 = 7;
const STATUS: u64 = 1;
const START: u64 = 1;
const VALUE: u64 = 1;
const TAG: u64 = 1;
const SIMPLE_VALUE: u64 = 2;

/// A Protocol Buffers message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn event(wall_time: f64, step: u64) -> Self {
        let mut event = Self::default();
        event.fixed64(WALL_TIME, wall_time.to_bits());
        event.varint(STEP, step);
        event
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.raw(field << 3);
        self.raw(value);
    }

    fn fixed64(&mut self, field: u64, bits: u64) {
        self.raw(field << 3 | 1);
        self.0.extend(bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.raw(field << 3 | 2);
        self.raw(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn fixed32(&mut self, field: u64, bits: u32) {
        self.raw(field << 3 | 5);
        self.0.extend(bits.to_le_bytes());
    }

    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

fn write_record(to: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let length = (payload.len() as u64).to_le_bytes();
    to.write_all(&length)?;
    to.write_all(&masked_crc(&length).to_le_bytes())?;
    to.write_all(payload)?;
    to.write_all(&masked_crc(payload).to_le_bytes())
}

/// The format masks its checksums, so that the checksum of data that holds checksums stays a good one.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C bit by bit: records are some dozen bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let odd = crc & 1 == 1;
            crc = crc >> 1 ^ if odd { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

fn seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A file that nobody else has; names sort by time, in which order TensorBoard reads them.
fn new_file(dir: &Path, now: f64) -> io::Result<(PathBuf, File)> {
    let host = host();
    let pid = process::id();
    let mut count = 0;
    loop {
        let name = format!("events.out.tfevents.{now:010.0}.{host}.{pid}.{count}");
        let path = dir.join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => count += 1,
            Err(error) => return Err(error),
            Ok(file) => return Ok((path, file)),
        }
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.chars().filter(plain).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
