//! Who takes part: ranks, the world, and groups of the world.

use std::fmt;

use crate::error::ConfigError;

/// The number of a worker, `0..world.size()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u32);

impl Rank {
    /// The worker with this number.
    pub const fn new(rank: u32) -> Self {
        Self(rank)
    }

    /// The number, for arithmetic and messages.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as a position in a list of all workers.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One worker's view of all workers: its own rank and how many there are. `rank < size` by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    rank: Rank,
    size: u32,
}

impl World {
    /// The world of `size` workers seen from `rank`.
    ///
    /// # Errors
    /// When `rank >= size` (so also when `size` is 0).
    pub fn new(rank: u32, size: u32) -> Result<Self, ConfigError> {
        if rank < size {
            Ok(Self {
                rank: Rank(rank),
                size,
            })
        } else {
            Err(ConfigError::RankOutOfRange { rank, size })
        }
    }

    /// All the views of a world of `size` workers, in rank order.
    pub fn all(size: u32) -> impl Iterator<Item = Self> {
        (0..size).map(move |rank| Self {
            rank: Rank(rank),
            size,
        })
    }

    /// This worker.
    pub const fn rank(self) -> Rank {
        self.rank
    }

    /// How many workers there are, at least 1.
    pub const fn size(self) -> u32 {
        self.size
    }

    /// The whole world as one group.
    pub const fn everyone(self) -> Group {
        Group {
            first: 0,
            stride: 1,
            size: self.size,
            position: self.rank.0,
        }
    }

    /// The team of this worker when the world is cut into `teams` runs of consecutive ranks.
    ///
    /// # Errors
    /// When `teams` does not divide the number of workers; the message names the nearest divisors.
    pub fn team(self, teams: u32) -> Result<Group, ConfigError> {
        let size = self.team_size(teams)?;
        Ok(Group {
            first: self.rank.0 / size * size,
            stride: 1,
            size,
            position: self.rank.0 % size,
        })
    }

    /// The workers that hold the same position in each of `teams` teams, in team order.
    ///
    /// # Errors
    /// As [`World::team`].
    pub fn column(self, teams: u32) -> Result<Group, ConfigError> {
        let size = self.team_size(teams)?;
        Ok(Group {
            first: self.rank.0 % size,
            stride: size,
            size: teams,
            position: self.rank.0 / size,
        })
    }

    fn team_size(self, teams: u32) -> Result<u32, ConfigError> {
        if teams != 0 && self.size.is_multiple_of(teams) {
            return Ok(self.size / teams);
        }
        let divides = |d: &u32| self.size.is_multiple_of(*d);
        Err(ConfigError::TeamsDoNotDivide {
            teams,
            workers: self.size,
            below: (1..=self.size.min(teams.saturating_sub(1)))
                .rev()
                .find(divides),
            above: (teams.saturating_add(1)..=self.size).find(divides),
        })
    }
}

/// An ordered subset of the world (everyone, a team, a column), seen from one of its members.
///
/// Schedules speak of positions `0..size`; a group turns positions into ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    first: u32,
    stride: u32,
    size: u32,
    position: u32,
}

impl Group {
    /// How many members the group has, at least 1.
    pub const fn size(self) -> usize {
        self.size as usize
    }

    /// The position of this worker in the group.
    pub const fn position(self) -> usize {
        self.position as usize
    }

    /// The rank of the member at `position`, taken modulo the group's size.
    pub const fn rank(self, position: usize) -> Rank {
        let position = (position % self.size as usize) as u32;
        Rank(self.first + position * self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_and_columns_cover_the_world_once() {
        for size in 1..=40 {
            for teams in (1..=size).filter(|d| size % d == 0) {
                let mut seen = vec![0; size as usize];
                for world in World::all(size) {
                    let (team, column) = (world.team(teams).unwrap(), world.column(teams).unwrap());
                    assert_eq!(team.rank(team.position()), world.rank());
                    assert_eq!(column.rank(column.position()), world.rank());
                    assert_eq!(team.size() * column.size(), size as usize);
                    seen[team.rank(column.position()).index()] += usize::from(teams == size);
                }
                assert!(teams != size || seen.iter().all(|&s| s == 1));
            }
        }
    }

    #[test]
    fn a_team_count_that_does_not_divide_names_the_nearest_divisors() {
        let error = World::new(0, 12).unwrap().team(5).unwrap_err().to_string();
        assert_eq!(
            error,
            "5 teams do not divide 12 workers evenly: use 4 or 6 teams"
        );
        let error = World::new(0, 6).unwrap().team(9).unwrap_err().to_string();
        assert_eq!(error, "9 teams do not divide 6 workers evenly: use 6 teams");
        assert!(World::new(0, 6).unwrap().team(0).is_err());
    }
}
