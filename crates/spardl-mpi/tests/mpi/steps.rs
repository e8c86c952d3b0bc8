//! A rank that takes step after step, and hangs at a point of one if it is the victim.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use spardl_algos::{Options, registry};
use spardl_core::{Inbox, Input, Layout, Round, World};
use spardl_drive::{BucketId, Clock, Deadline, Driver, Transport, TransportError};
use spardl_mpi::Mpi;

/// How many ranks take part.
pub(crate) const RANKS: u32 = 4;
/// The rank that hangs or is killed.
pub(crate) const VICTIM: u32 = 2;
/// How long a round may be in flight.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// How long a rank that failed waits for the others.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// The step in which the victim hangs.
const FATAL_STEP: u64 = 3;
const LENS: [usize; 2] = [3000, 100];

/// Where in a step the victim hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    Never,
    BetweenSteps,
    /// After its selection, before anything of the step is sent.
    Select,
    /// After the messages of that round are sent, while it should wait.
    Round(u32),
}

impl Point {
    pub(crate) fn to_arg(self) -> String {
        match self {
            Self::Never => "never".to_owned(),
            Self::BetweenSteps => "between".to_owned(),
            Self::Select => "select".to_owned(),
            Self::Round(round) => round.to_string(),
        }
    }

    fn from_arg(arg: &str) -> Self {
        match arg {
            "never" => Self::Never,
            "between" => Self::BetweenSteps,
            "select" => Self::Select,
            round => Self::Round(round.parse().unwrap()),
        }
    }
}

pub(crate) fn rank(point: &str) -> ExitCode {
    let point = Point::from_arg(point);
    let mpi = Mpi::init().unwrap();
    let mut transport = mpi.transport().unwrap();
    transport.set_grace(GRACE);
    let rank = transport.world().rank();
    let point = if rank.get() == VICTIM {
        point
    } else {
        Point::Never
    };
    println!("rank {rank} pid {}", std::process::id());
    let hanging = Hanging {
        transport,
        point,
        step: 0,
    };
    let method = registry::build("spardl", &Options::default()).unwrap();
    let layouts = LENS.map(|len| Layout::flat(len as u32));
    let driver = Driver::for_layouts(hanging, &*method, &layouts).unwrap();
    let mut driver = driver.with_timeout(DEADLINE);
    let gradients = LENS.map(|len| (0..len).map(|i| (i % 97) as f32).collect::<Vec<f32>>());
    for step in 0.. {
        if point == Point::BetweenSteps && step == FATAL_STEP {
            hang();
        }
        let inputs = gradients
            .each_ref()
            .map(|gradient| Input::new(gradient, 30, step));
        if let Err(error) = driver.all_reduce(&inputs) {
            // stdout writes whole lines; on stderr the pieces of several ranks would mix.
            println!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn hang() -> ! {
    println!("rank {VICTIM} hangs");
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

#[derive(Debug)]
struct Hanging<T> {
    transport: T,
    point: Point,
    step: u64,
}

impl<T: Transport> Transport for Hanging<T> {
    fn world(&self) -> World {
        self.transport.world()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.transport.clock()
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let seq = round.seq;
        if self.step == FATAL_STEP && self.point == Point::Select {
            hang();
        }
        self.transport.submit(bucket, round)?;
        if self.step == FATAL_STEP && self.point == Point::Round(seq) {
            hang();
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.transport.poll()
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.transport.wait_any(deadline)
    }

    fn complete_step(&mut self) {
        self.step += 1;
        self.transport.complete_step();
    }

    fn abandon(&mut self) {
        self.transport.abandon();
    }
}
