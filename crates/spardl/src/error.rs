//! One error for the caller, with questions to ask it.

use std::fmt;

use spardl_core::{ConfigError, Rank};
use spardl_drive::{DriveError, PoolError, TransportError};

/// Why a call failed. The state of the reducer is as before the call.
#[derive(Debug)]
pub struct Error(Kind);

#[derive(Debug)]
enum Kind {
    Config(ConfigError),
    Drive(DriveError),
    Threads(PoolError),
}

impl Error {
    /// Did the caller ask for something that cannot be? The message says what can.
    pub fn is_config(&self) -> bool {
        match &self.0 {
            Kind::Config(_) => true,
            Kind::Drive(error) => error.is_misuse(),
            Kind::Threads(_) => false,
        }
    }

    /// Was some worker's gradient, or the sum of all, NaN or infinite, and was that to be an error?
    pub const fn is_non_finite(&self) -> bool {
        matches!(self.0, Kind::Drive(DriveError::NonFinite { .. }))
    }

    /// Did a peer not answer in time?
    pub fn is_timeout(&self) -> bool {
        matches!(self.transport(), Some(TransportError::Timeout { .. }))
    }

    /// Is a peer gone, late or sending what it should not?
    pub fn is_peer_fault(&self) -> bool {
        matches!(&self.0, Kind::Drive(error) if error.is_peer_fault())
    }

    /// Did this worker fail only because another one did? Its error says why.
    pub fn is_secondary(&self) -> bool {
        matches!(&self.0, Kind::Drive(error) if error.is_secondary())
    }

    /// The worker that was lost, when that is known.
    pub fn peer(&self) -> Option<Rank> {
        match self.transport()? {
            TransportError::PeerLost { peer, .. } => Some(*peer),
            _ => None,
        }
    }

    fn transport(&self) -> Option<&TransportError> {
        match &self.0 {
            Kind::Drive(DriveError::Transport(error)) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Config(error) => error.fmt(f),
            Kind::Drive(error) => error.fmt(f),
            Kind::Threads(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Config(error) => error.source(),
            Kind::Drive(error) => error.source(),
            Kind::Threads(error) => error.source(),
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self(Kind::Config(error))
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        Self(Kind::Threads(error))
    }
}

impl From<DriveError> for Error {
    fn from(error: DriveError) -> Self {
        Self(Kind::Drive(error))
    }
}
