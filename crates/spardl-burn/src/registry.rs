//! The networks by name.

use burn::tensor::Device;
use spardl_core::ConfigError;
use spardl_train::Model;
use spardl_train::data::Task;

use crate::DeviceChoice;
use crate::models::alexnet::AlexNet;
use crate::models::lenet::LeNet;
use crate::models::mlp::Mlp;
use crate::models::resnet::CifarResNet;
use crate::models::resnet50::ResNet50;
use crate::models::vgg::Vgg;
use crate::replica::{Network, Replica};

/// A network that can be built.
#[derive(Debug)]
pub struct Entry {
    /// Its published name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it is for.
    pub wants: Wants,
    make: Make,
}

/// The kind of task a network is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Images of at least this many rows and columns.
    Images {
        /// The smallest side.
        side: usize,
    },
    /// Sequences of tokens, each of one kind.
    Sequences,
    /// Text, a token for each token.
    Language,
}

/// Why a network cannot be built.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum BuildError {
    /// There is no network of this name.
    #[error("unknown model {name}: expected one of {}", names())]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The network is for another kind of data.
    #[error("model {name} is for {expected}, not for {found}: take {data}, or a model for {found}")]
    WrongTask {
        /// The name of the network.
        name: &'static str,
        /// What it is for.
        expected: &'static str,
        /// What the data set has.
        found: &'static str,
        /// Data sets that fit.
        data: &'static str,
    },
    /// The images have too few rows or columns.
    #[error(
        "model {name} needs images of at least {side} x {side}: the data set has {rows} x {columns}"
    )]
    TooSmall {
        /// The name of the network.
        name: &'static str,
        /// The smallest side.
        side: usize,
        /// Rows of an image.
        rows: usize,
        /// Columns of an image.
        columns: usize,
    },
    /// A number of the task is zero.
    #[error("the task has no {what}: expected at least one")]
    Empty {
        /// What is missing.
        what: &'static str,
    },
    /// The parameters are too many.
    #[error("model {name} does not fit this task: {source}")]
    TooLarge {
        /// The name of the network.
        name: &'static str,
        /// Why.
        source: ConfigError,
    },
}

/// All networks.
pub const MODELS: &[Entry] = &[
    Entry {
        name: "mlp",
        about: "two hidden layers of 256 for quick runs",
        wants: Wants::Images { side: 1 },
        make: Make::Images(|site, shape, classes| {
            site.replica(Mlp::new(shape, classes, &site.device))
        }),
    },
    Entry {
        name: "lenet",
        about: "LeNet-5 with ReLU and max pooling",
        wants: Wants::Images { side: 12 },
        make: Make::Images(|site, shape, classes| {
            site.replica(LeNet::new(shape, classes, &site.device))
        }),
    },
    Entry {
        name: "resnet20",
        about: "ResNet-20 for CIFAR, parameter-free shortcuts (269,722 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        make: cifar_resnet::<3>(),
    },
    Entry {
        name: "resnet56",
        about: "ResNet-56 for CIFAR, parameter-free shortcuts (853,018 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        make: cifar_resnet::<9>(),
    },
    Entry {
        name: "resnet110",
        about: "ResNet-110 for CIFAR, parameter-free shortcuts (1,727,962 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        make: cifar_resnet::<18>(),
    },
    Entry {
        name: "resnet50",
        about: "ResNet-50 for ImageNet (25,557,032 parameters for 1000 classes)",
        wants: Wants::Images { side: 32 },
        make: Make::Images(|site, shape, classes| {
            site.replica(ResNet50::new(shape[0], classes, &site.device))
        }),
    },
    Entry {
        name: "vgg16",
        about: "VGG-16 for CIFAR with batch normalisation (14,728,266 parameters for 10 classes)",
        wants: Wants::Images { side: 32 },
        make: Make::Images(|site, shape, classes| {
            site.replica(Vgg::vgg16(shape[0], classes, &site.device))
        }),
    },
    Entry {
        name: "vgg19",
        about: "VGG-19 for CIFAR with batch normalisation (20,040,522 parameters for 10 classes)",
        wants: Wants::Images { side: 32 },
        make: Make::Images(|site, shape, classes| {
            site.replica(Vgg::vgg19(shape[0], classes, &site.device))
        }),
    },
    Entry {
        name: "alexnet",
        about: "AlexNet (61,100,840 parameters for ImageNet; 23,272,266 for CIFAR-10, a smaller form)",
        wants: Wants::Images { side: 16 },
        make: Make::Images(|site, shape, classes| {
            site.replica(AlexNet::new(shape, classes, &site.device))
        }),
    },
];

/// A replica of the network called `name` for `task`, its parameters drawn from `seed`.
///
/// # Errors
/// When there is no such network, or it does not fit the task.
pub fn build(
    name: &str,
    task: &Task,
    seed: u64,
    device: &DeviceChoice,
) -> Result<Box<dyn Model + Send>, BuildError> {
    let entry = find(name)?;
    check(entry, task)?;
    let mut site = Place {
        device: device.open(),
        seed,
        shape: Vec::new(),
    };
    let built = match (&entry.make, *task) {
        (Make::Images(make), Task::Images { shape, classes }) => {
            site.shape = shape.to_vec();
            make(&site, shape, classes)
        }
        _ => return Err(entry.refuse(task)),
    };
    built.map_err(|source| BuildError::TooLarge {
        name: entry.name,
        source,
    })
}

type Built = Result<Box<dyn Model + Send>, ConfigError>;

/// How to make a network of a task's numbers.
#[derive(Debug)]
enum Make {
    /// Channels, rows and columns; classes.
    Images(fn(&Place, [usize; 3], usize) -> Built),
}

/// What all replicas are made with.
struct Place {
    device: Device,
    seed: u64,
    shape: Vec<usize>,
}

impl Place {
    fn replica<N: Network + 'static>(&self, network: N) -> Built {
        let replica = Replica::new(network, self.seed, &self.device, &self.shape)?;
        Ok(Box::new(replica))
    }
}

impl Entry {
    fn refuse(&self, task: &Task) -> BuildError {
        let (expected, data) = match self.wants {
            Wants::Images { .. } => (
                "images",
                "mnist, cifar10, cifar100, imagenet or synthetic images",
            ),
            Wants::Sequences => ("labelled sequences", "imdb or synthetic sequences"),
            Wants::Language => ("text", "wikitext, a text file or synthetic text"),
        };
        let found = match task {
            Task::Images { .. } => "images",
            Task::Sequences { .. } => "labelled sequences",
            Task::Language { .. } => "text",
        };
        BuildError::WrongTask {
            name: self.name,
            expected,
            found,
            data,
        }
    }
}

const fn cifar_resnet<const BLOCKS: usize>() -> Make {
    Make::Images(|site, shape, classes| {
        site.replica(CifarResNet::new(shape[0], classes, BLOCKS, &site.device))
    })
}

fn find(name: &str) -> Result<&'static Entry, BuildError> {
    MODELS
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| BuildError::Unknown {
            name: name.to_owned(),
        })
}

fn check(entry: &Entry, task: &Task) -> Result<(), BuildError> {
    let numbers: &[(&'static str, usize)] = match *task {
        Task::Images {
            shape: [channels, rows, columns],
            classes,
        } => {
            if let Wants::Images { side } = entry.wants
                && rows.min(columns) < side
                && rows.min(columns) > 0
            {
                return Err(BuildError::TooSmall {
                    name: entry.name,
                    side,
                    rows,
                    columns,
                });
            }
            &[
                ("channels", channels),
                ("pixels", rows * columns),
                ("classes", classes),
            ]
        }
        Task::Sequences {
            length,
            vocabulary,
            classes,
        } => &[
            ("tokens", length),
            ("vocabulary", vocabulary),
            ("classes", classes),
        ],
        Task::Language { length, vocabulary } => &[("tokens", length), ("vocabulary", vocabulary)],
    };
    match numbers.iter().find(|(_, number)| *number == 0) {
        Some(&(what, _)) => Err(BuildError::Empty { what }),
        None => Ok(()),
    }
}

fn names() -> String {
    let names: Vec<&str> = MODELS.iter().map(|entry| entry.name).collect();
    names.join(", ")
}
