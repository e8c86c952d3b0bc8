//! How workers are wired: links with a bandwidth each, and the links that a message between two workers takes.

use std::fmt;

use spardl_core::{Line, Rank};

use crate::overhead::Overhead;

/// Nanoseconds of so many bytes at so many bits per second, rounded up.
pub(crate) const fn transfer(bytes: u64, bandwidth: u64) -> u64 {
    let latency = 0;
    Line { latency, bandwidth }.transfer(bytes)
}

/// The shape of a network. Every worker has a link out and a link in; what lies between them differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// One switch that is never the bottleneck.
    Flat,
    /// Machines of several workers: a line of their own inside, one shared link out and one in per machine.
    TwoLevel {
        /// Workers of a machine.
        node_size: u32,
        /// The line inside a machine.
        inside: Line,
    },
    /// Switches of some workers each, below a core that is never the bottleneck.
    FatTree {
        /// Workers of a leaf switch.
        leaf_size: u32,
        /// How much less a switch can send up than its workers can send: 1 is a full tree.
        oversubscription: u32,
        /// Nanoseconds that two switches more add to a way.
        hop_latency: u64,
    },
    /// Routers on a square, each wired directly to all others of its row and of its column; a message goes along the row first.
    FlattenedButterfly {
        /// How much thinner a wire between routers is than a worker's link.
        oversubscription: u32,
        /// Nanoseconds that each router more adds to a way.
        hop_latency: u64,
    },
    /// A line of its own for every ordered pair, as measured.
    Matrix(Matrix),
}

/// Measured lines between all ordered pairs of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    size: u32,
    lines: Vec<Line>,
}

impl Matrix {
    /// A matrix of `size` rows with one line per pair, row by row. What stands on the diagonal is never used.
    ///
    /// # Errors
    /// When there are not `size * size` lines.
    pub fn new(size: u32, lines: Vec<Line>) -> Result<Self, String> {
        if lines.len() as u64 != u64::from(size) * u64::from(size) {
            return Err(format!(
                "{} lines for {size} workers: expected one for each ordered pair",
                lines.len()
            ));
        }
        Ok(Self { size, lines })
    }

    /// How many workers it has lines for.
    pub const fn size(&self) -> u32 {
        self.size
    }

    fn line(&self, from: u32, to: u32) -> Line {
        self.lines[(from as usize) * self.size as usize + to as usize]
    }

    /// The widest line of a worker, in one direction.
    fn widest(&self, worker: u32, out: bool) -> u64 {
        let peers = (0..self.size).filter(|&peer| peer != worker);
        let lines = peers.map(|peer| {
            if out {
                self.line(worker, peer)
            } else {
                self.line(peer, worker)
            }
        });
        lines.map(|line| line.bandwidth).max().unwrap_or(1)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat => f.write_str("flat"),
            Self::TwoLevel { node_size, .. } => write!(f, "two-level, {node_size} per machine"),
            Self::FatTree {
                leaf_size,
                oversubscription,
                ..
            } => write!(f, "fat tree, {leaf_size} per switch, {oversubscription}:1"),
            Self::FlattenedButterfly {
                oversubscription, ..
            } => write!(f, "flattened butterfly, {oversubscription}:1"),
            Self::Matrix(matrix) => write!(f, "matrix of {} workers", matrix.size),
        }
    }
}

/// The longest way: out, two shared links up, two down, in.
const LONGEST: usize = 4;

/// The way of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Nanoseconds.
    pub(crate) latency: u64,
    links: [u32; LONGEST],
    len: u8,
}

impl Route {
    fn new(latency: u64, ways: &[u32]) -> Self {
        let mut links = [0; LONGEST];
        links[..ways.len()].copy_from_slice(ways);
        Self {
            latency,
            links,
            len: ways.len() as u8,
        }
    }

    pub(crate) fn links(&self) -> &[u32] {
        &self.links[..usize::from(self.len)]
    }
}

/// A topology for a number of workers: all its links.
///
/// Links are numbered: `2 w` is out of worker `w` and `2 w + 1` into it, then come those between workers.
#[derive(Clone, Debug)]
pub struct Fabric {
    topology: Topology,
    workers: u32,
    line: Line,
    capacities: Vec<u64>,
    burst: u64,
    overhead: Overhead,
    again: Option<Overhead>,
}

impl Fabric {
    /// The links of a topology, each worker with a `line` of its own.
    ///
    /// # Errors
    /// When the topology has no place for so many workers.
    pub fn new(topology: Topology, workers: u32, line: Line) -> Result<Self, String> {
        let own = match &topology {
            Topology::TwoLevel { inside, .. } => inside.bandwidth,
            _ => line.bandwidth,
        };
        let mut capacities = vec![own.max(1); 2 * workers as usize];
        match &topology {
            Topology::Flat => {}
            Topology::TwoLevel { node_size, .. } => {
                let nodes = groups(workers, *node_size, "machine")?;
                capacities.extend(vec![line.bandwidth; 2 * nodes as usize]);
            }
            Topology::FatTree {
                leaf_size,
                oversubscription,
                ..
            } => {
                let leaves = groups(workers, *leaf_size, "switch")?;
                let up = share(
                    line.bandwidth.saturating_mul(u64::from(*leaf_size)),
                    *oversubscription,
                )?;
                capacities.extend(vec![up; 2 * leaves as usize]);
            }
            Topology::FlattenedButterfly {
                oversubscription, ..
            } => {
                let side = square_side(workers) as usize;
                let wire = share(line.bandwidth, *oversubscription)?;
                capacities.extend(vec![wire; 2 * side * side * side]);
            }
            Topology::Matrix(matrix) => {
                if matrix.size < workers {
                    return Err(format!(
                        "the matrix has {} workers, not {workers}",
                        matrix.size
                    ));
                }
                for worker in 0..workers {
                    capacities[2 * worker as usize] = matrix.widest(worker, true).max(1);
                    capacities[2 * worker as usize + 1] = matrix.widest(worker, false).max(1);
                }
                for from in 0..workers {
                    let row = (0..workers).map(|to| matrix.line(from, to).bandwidth.max(1));
                    capacities.extend(row);
                }
            }
        }
        Ok(Self {
            topology,
            workers,
            line,
            capacities,
            burst: 0,
            overhead: Overhead::default(),
            again: None,
        })
    }

    /// The shape.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How many workers there are.
    pub const fn workers(&self) -> u32 {
        self.workers
    }

    /// The line of a worker.
    pub const fn line(&self) -> Line {
        self.line
    }

    /// Lets every link pass so many bytes at once when it was idle long enough, as links do that a token bucket shapes.
    #[must_use]
    pub const fn with_burst(mut self, bytes: u64) -> Self {
        self.burst = bytes;
        self
    }

    /// What a link that was idle passes at once, in bytes.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Lets messages take longer than their bytes and the latency of their way, by their length.
    #[must_use]
    pub fn with_overhead(self, overhead: Overhead) -> Self {
        Self { overhead, ..self }
    }

    /// Gives messages another overhead that go to the worker which got the sender's last one too.
    ///
    /// Libraries of messages may be slower when every message goes to another worker than in a ring.
    #[must_use]
    pub fn with_overhead_again(self, overhead: Overhead) -> Self {
        Self {
            again: Some(overhead),
            ..self
        }
    }

    /// What a message of so many bytes takes longer, to the worker that got the sender's last one or to another.
    pub(crate) fn overhead(&self, bytes: u64, again: bool) -> u64 {
        let again = self.again.as_ref().filter(|_| again);
        again.unwrap_or(&self.overhead).of(bytes)
    }

    /// Bits per second of every link.
    pub(crate) fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    /// The way of a message between two workers.
    pub(crate) fn route(&self, from: Rank, to: Rank) -> Route {
        let (from, to) = (from.get(), to.get());
        let (out, into, first) = (2 * from, 2 * to + 1, 2 * self.workers);
        let latency = self.line.latency;
        match &self.topology {
            Topology::Flat => Route::new(latency, &[out, into]),
            Topology::TwoLevel { node_size, inside } => {
                let (here, there) = (from / node_size, to / node_size);
                if here == there {
                    return Route::new(inside.latency, &[out, into]);
                }
                let (up, down) = (first + 2 * here, first + 2 * there + 1);
                Route::new(latency, &[out, up, down, into])
            }
            Topology::FatTree {
                leaf_size,
                hop_latency,
                ..
            } => {
                let (here, there) = (from / leaf_size, to / leaf_size);
                if here == there {
                    return Route::new(latency, &[out, into]);
                }
                let (up, down) = (first + 2 * here, first + 2 * there + 1);
                Route::new(latency + hop_latency, &[out, up, down, into])
            }
            Topology::FlattenedButterfly { hop_latency, .. } => {
                let side = square_side(self.workers);
                let routers = side * side;
                let place = |worker| {
                    let router =
                        (u64::from(worker) * u64::from(routers) / u64::from(self.workers)) as u32;
                    (router / side, router % side)
                };
                let ((row, column), (to_row, to_column)) = (place(from), place(to));
                let mut ways = vec![out];
                if column != to_column {
                    ways.push(first + (row * side + column) * 2 * side + to_column);
                }
                if row != to_row {
                    ways.push(first + (row * side + to_column) * 2 * side + side + to_row);
                }
                ways.push(into);
                let hops = ways.len() as u64 - 2;
                Route::new(latency + hops * hop_latency, &ways)
            }
            Topology::Matrix(matrix) => {
                let pair = first + from * self.workers + to;
                Route::new(matrix.line(from, to).latency, &[out, pair, into])
            }
        }
    }

    /// What a link is, in words.
    pub fn link_name(&self, link: usize) -> String {
        let workers = self.workers as usize;
        let direction = |at: usize| {
            if at.is_multiple_of(2) {
                "out of"
            } else {
                "into"
            }
        };
        let Some(at) = link.checked_sub(2 * workers) else {
            return format!("{} worker {}", direction(link), link / 2);
        };
        match &self.topology {
            Topology::TwoLevel { .. } => format!("{} machine {}", direction(at), at / 2),
            Topology::FatTree { .. } => format!("{} switch {}", direction(at), at / 2),
            Topology::FlattenedButterfly { .. } => {
                let side = square_side(self.workers) as usize;
                let (router, way) = (at / (2 * side), at % (2 * side));
                let (row, column) = (router / side, router % side);
                let (to_row, to_column) = if way < side {
                    (row, way)
                } else {
                    (way - side, column)
                };
                format!("router ({row}, {column}) to ({to_row}, {to_column})")
            }
            Topology::Flat | Topology::Matrix(_) => {
                format!("worker {} to worker {}", at / workers, at % workers)
            }
        }
    }
}

/// How many groups of `size` hold all workers.
fn groups(workers: u32, size: u32, what: &str) -> Result<u32, String> {
    if size == 0 {
        return Err(format!("a {what} of no workers: expected at least 1"));
    }
    Ok(workers.div_ceil(size))
}

fn share(bandwidth: u64, oversubscription: u32) -> Result<u64, String> {
    if oversubscription == 0 {
        return Err("an oversubscription of 0: expected at least 1".to_owned());
    }
    Ok((bandwidth / u64::from(oversubscription)).max(1))
}

/// The side of the square of routers: as many routers in a row as workers at a router, about.
fn square_side(workers: u32) -> u32 {
    let is_enough = |side: &u32| u64::from(*side).pow(3) >= u64::from(workers);
    (1..).find(is_enough).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line {
        latency: 10_000,
        bandwidth: 1_000_000_000,
    };

    fn shapes(workers: u32) -> Vec<Topology> {
        let inside = Line {
            latency: 500,
            bandwidth: 100_000_000_000,
        };
        vec![
            Topology::Flat,
            Topology::TwoLevel {
                node_size: 4,
                inside,
            },
            Topology::FatTree {
                leaf_size: 5,
                oversubscription: 3,
                hop_latency: 700,
            },
            Topology::FlattenedButterfly {
                oversubscription: 1,
                hop_latency: 700,
            },
            Topology::Matrix(
                Matrix::new(workers, vec![LINE; (workers * workers) as usize]).unwrap(),
            ),
        ]
    }

    #[test]
    fn every_way_begins_at_its_sender_and_ends_at_its_receiver_over_links_that_exist() {
        for workers in [1, 2, 7, 30, 64] {
            for shape in shapes(workers) {
                let fabric = Fabric::new(shape, workers, LINE).unwrap();
                for (from, to) in (0..workers).flat_map(|a| (0..workers).map(move |b| (a, b))) {
                    let route = fabric.route(Rank::new(from), Rank::new(to));
                    let links = route.links();
                    assert_eq!((links[0], links[links.len() - 1]), (2 * from, 2 * to + 1));
                    let exist = |&link: &u32| (link as usize) < fabric.capacities().len();
                    assert!(links.iter().all(exist), "{fabric:?} {from} {to}");
                    let names: Vec<_> = links
                        .iter()
                        .map(|l| fabric.link_name(*l as usize))
                        .collect();
                    assert_eq!(names[0], format!("out of worker {from}"));
                }
            }
        }
    }

    #[test]
    fn neighbours_are_nearer_than_strangers() {
        let latency = |shape, a, b| {
            let fabric = Fabric::new(shape, 30, LINE).unwrap();
            fabric.route(Rank::new(a), Rank::new(b)).latency
        };
        let mut shapes = shapes(30).into_iter();
        let mut of = |a, b| latency(shapes.next().unwrap(), a, b);
        assert_eq!(of(0, 29), 10_000);
        assert_eq!(of(0, 3), 500);
        assert_eq!(of(0, 5), 10_700);
        assert_eq!(of(0, 29), 11_400);
    }

    #[test]
    fn a_shape_without_room_is_refused_in_words() {
        let refused = |shape| Fabric::new(shape, 8, LINE).unwrap_err();
        let matrix = Matrix::new(4, vec![LINE; 16]).unwrap();
        assert_eq!(
            refused(Topology::Matrix(matrix)),
            "the matrix has 4 workers, not 8"
        );
        let inside = LINE;
        let empty = Topology::TwoLevel {
            node_size: 0,
            inside,
        };
        assert_eq!(
            refused(empty),
            "a machine of no workers: expected at least 1"
        );
        assert!(Matrix::new(2, vec![LINE; 3]).is_err());
    }
}
