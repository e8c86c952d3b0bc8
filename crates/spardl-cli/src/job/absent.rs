//! A build without MPI: no value of this type exists.

use std::time::Duration;

use spardl_core::{Rank, World};
use spardl_drive::Transport;

/// No job.
#[derive(Debug)]
pub(crate) enum Job {}

/// No loop.
#[derive(Debug)]
pub(crate) enum BareLoop {}

impl BareLoop {
    pub(crate) const fn run(&mut self, _deadline: Duration) -> anyhow::Result<Duration> {
        match *self {}
    }
}

impl Job {
    pub(crate) const fn library() -> Option<String> {
        None
    }

    pub(crate) fn join(_patience: Duration) -> anyhow::Result<Self> {
        anyhow::bail!("built without MPI")
    }

    pub(crate) const fn world(&self) -> World {
        match *self {}
    }

    pub(crate) const fn host(&self) -> String {
        match *self {}
    }

    pub(crate) const fn transport(&mut self) -> &mut dyn Transport {
        match *self {}
    }

    pub(crate) const fn set_patience(&mut self, _patience: Duration) {
        match *self {}
    }

    pub(crate) const fn barrier(&mut self) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) const fn gather(&mut self, _mine: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        match *self {}
    }

    pub(crate) const fn all_reduce(
        &mut self,
        _values: &mut [f32],
        _deadline: Duration,
    ) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) const fn bare_loop(
        &self,
        _plan: &[Vec<Vec<(u32, usize)>>],
        _deadline: Duration,
    ) -> anyhow::Result<BareLoop> {
        match *self {}
    }

    pub(crate) const fn ping_pong(
        &mut self,
        _peer: Rank,
        _bytes: usize,
        _repetitions: u32,
    ) -> anyhow::Result<Duration> {
        match *self {}
    }

    pub(crate) const fn shift(
        &mut self,
        _bytes: usize,
        _gaps: &[u32],
        _turns: (u32, Duration),
    ) -> anyhow::Result<Duration> {
        match *self {}
    }
}
