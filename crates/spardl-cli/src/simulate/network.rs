//! The options that describe a network, shared by the subcommands that predict.

use std::path::{Path, PathBuf};

use anyhow::Context;
use spardl_core::offer;
use spardl_sim::{Fabric, Line, Matrix, Overhead, Sharing, Topology};

use super::units::{bits, bytes, nanos};
use crate::output::bad_request;

/// A network.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArgs {
    /// flat, two-level, fat-tree, flattened-butterfly, or a file of lines `from,to,latency,bandwidth`.
    #[arg(long, default_value = "flat", value_name = "SHAPE|FILE")]
    pub(crate) topology: String,
    /// Time that a message takes however short it is.
    #[arg(long, default_value = "10us", value_name = "TIME", value_parser = nanos)]
    pub(crate) latency: u64,
    /// What a worker can send per second, and receive at the same time; with two-level, what a machine can.
    #[arg(long, default_value = "1gbit", value_name = "RATE", value_parser = bits)]
    pub(crate) bandwidth: u64,
    /// What a link that was idle passes at once, e.g. 72kb, as links do that a token bucket shapes.
    #[arg(long, default_value = "0b", value_name = "BYTES", value_parser = bytes)]
    pub(crate) burst: u64,
    /// What messages take beyond their bytes and the latency, by their length: as `spardl doctor` says of messages that all send at
    /// once, e.g. 1kb:20us,100kb:250us.
    #[arg(long, value_delimiter = ',', value_name = "BYTES:TIME,..", value_parser = overhead)]
    pub(crate) overhead: Vec<(u64, u64)>,
    /// The same for messages to the worker that got the sender's last one too, as in a ring [default: as --overhead].
    #[arg(long, value_delimiter = ',', value_name = "BYTES:TIME,..", value_parser = overhead)]
    pub(crate) overhead_again: Option<Vec<(u64, u64)>>,
    /// two-level: workers of a machine.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_size: u32,
    /// two-level: latency inside a machine.
    #[arg(long, default_value = "2us", value_name = "TIME", value_parser = nanos)]
    pub(crate) inside_latency: u64,
    /// two-level: bandwidth of a worker inside its machine.
    #[arg(long, default_value = "200gbit", value_name = "RATE", value_parser = bits)]
    pub(crate) inside_bandwidth: u64,
    /// fat-tree: workers of a leaf switch.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) leaf_size: u32,
    /// fat-tree: how much less a switch can send up than its workers can send. flattened-butterfly: how much thinner a wire
    /// between routers is than a worker's.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) oversubscription: u32,
    /// fat-tree, flattened-butterfly: what the way through further switches adds to the latency.
    #[arg(long, default_value = "500ns", value_name = "TIME", value_parser = nanos)]
    pub(crate) hop_latency: u64,
    /// When messages meet on a link: fair (each gets its part), or none (each has its way to itself, one after the other).
    #[arg(long, default_value = "fair")]
    pub(crate) sharing: SharingArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SharingArg {
    Fair,
    None,
}

impl NetworkArgs {
    /// The line of a worker, or of a machine.
    pub(crate) const fn line(&self) -> Line {
        Line {
            latency: self.latency,
            bandwidth: self.bandwidth,
        }
    }

    pub(crate) const fn sharing(&self) -> Sharing {
        match self.sharing {
            SharingArg::Fair => Sharing::Fair,
            SharingArg::None => Sharing::None,
        }
    }

    /// How many of so many workers are on one machine.
    pub(crate) fn machine_size(&self, workers: u32) -> u32 {
        match self.topology.as_str() {
            "two-level" => self.node_size,
            _ => workers,
        }
    }

    /// The links for so many workers.
    pub(crate) fn fabric(&self, workers: u32) -> anyhow::Result<Fabric> {
        let topology = match self.topology.as_str() {
            "flat" => Topology::Flat,
            "two-level" => Topology::TwoLevel {
                node_size: self.node_size,
                inside: Line {
                    latency: self.inside_latency,
                    bandwidth: self.inside_bandwidth,
                },
            },
            "fat-tree" => Topology::FatTree {
                leaf_size: self.leaf_size,
                oversubscription: self.oversubscription,
                hop_latency: self.hop_latency,
            },
            "flattened-butterfly" => Topology::FlattenedButterfly {
                oversubscription: self.oversubscription,
                hop_latency: self.hop_latency,
            },
            path => Topology::Matrix(read_matrix(&PathBuf::from(path), self.line())?),
        };
        let fabric = Fabric::new(topology, workers, self.line()).map_err(bad_request)?;
        let overhead = Overhead::new(self.overhead.clone());
        let fabric = fabric.with_burst(self.burst).with_overhead(overhead);
        Ok(match &self.overhead_again {
            Some(again) => fabric.with_overhead_again(Overhead::new(again.clone())),
            None => fabric,
        })
    }
}

/// A length and what messages of it take longer.
fn overhead(text: &str) -> Result<(u64, u64), String> {
    let (length, time) = text.split_once(':').ok_or_else(|| {
        format!("'{text}' is not BYTES:TIME: expected a length and a time, like 100kb:250us")
    })?;
    Ok((bytes(length)?, nanos(time)?))
}

/// Reads lines `from,to,latency,bandwidth`. A line counts for both directions unless the other has one of its own; pairs
/// without any have the line of the options.
fn read_matrix(path: &Path, default: Line) -> anyhow::Result<Matrix> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let known = ["flat", "two-level", "fat-tree", "flattened-butterfly"];
        let offer = offer(&shown.to_string(), &known);
        bad_request(format!(
            "--topology {shown}: {error}; {offer}, or the name of a file"
        ))
    })?;
    parse_matrix(&text, default).with_context(|| format!("--topology {shown}"))
}

fn parse_matrix(text: &str, default: Line) -> anyhow::Result<Matrix> {
    let mut pairs = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("from") {
            continue;
        }
        let pair = parse_pair(line);
        pairs.push(pair.map_err(|error| bad_request(format!("line {number}: {error}")))?);
    }
    let most = pairs.iter().map(|(from, to, _)| *from.max(to)).max();
    let Some(size) = most.map(|most| most + 1).filter(|size| *size > 1) else {
        return Err(bad_request(
            "no pair of workers: expected lines like 0,1,10us,1gbit",
        ));
    };
    if size > 8192 {
        return Err(bad_request(format!(
            "worker {} in a matrix: expected less than 8192",
            size - 1
        )));
    }
    let mut lines = vec![default; (size * size) as usize];
    let mut own = vec![false; lines.len()];
    for (from, to, line) in pairs {
        let (there, back) = ((from * size + to) as usize, (to * size + from) as usize);
        (lines[there], own[there]) = (line, true);
        if !own[back] {
            lines[back] = line;
        }
    }
    Matrix::new(size, lines).map_err(bad_request)
}

fn parse_pair(line: &str) -> Result<(u32, u32, Line), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[from, to, latency, bandwidth] = fields.as_slice() else {
        return Err(format!("'{line}' is not from,to,latency,bandwidth"));
    };
    let rank = |text: &str| {
        let number = text.parse::<u32>();
        number.map_err(|_| format!("'{text}' is not the number of a worker"))
    };
    let line = Line {
        latency: nanos(latency)?,
        bandwidth: bits(bandwidth)?,
    };
    Ok((rank(from)?, rank(to)?, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Line = Line {
        latency: 1,
        bandwidth: 2,
    };

    #[test]
    fn a_matrix_is_read_in_both_directions_and_the_rest_is_the_default() {
        let text = "from,to,latency,bandwidth\n# measured\n0,1,10us,1gbit\n1,0,20us,1gbit\n\n0,2,5ms,100mbit\n";
        let matrix = parse_matrix(text, DEFAULT).unwrap();
        let line = |latency, bandwidth| Line { latency, bandwidth };
        let (near, back, far) = (
            line(10_000, 1_000_000_000),
            line(20_000, 1_000_000_000),
            line(5_000_000, 100_000_000),
        );
        let expected = vec![
            DEFAULT, near, far, back, DEFAULT, DEFAULT, far, DEFAULT, DEFAULT,
        ];
        assert_eq!(matrix, Matrix::new(3, expected).unwrap());
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let complaint = |text| format!("{:#}", parse_matrix(text, DEFAULT).unwrap_err());
        assert!(complaint("0,1,10us,1gbit\n0,x,1us,1gbit").starts_with("line 2: 'x' is not"));
        assert!(complaint("0,1,10us").starts_with("line 1: '0,1,10us' is not from,to"));
        assert!(complaint("0,1,10,1gbit").contains("'10' is not a time"));
        assert!(complaint("").contains("no pair of workers"));
    }
}
