//! The networks by name.

use burn::tensor::Device;
use spardl_core::{ConfigError, Layout};
use spardl_train::Model;
use spardl_train::data::Task;

use crate::models::alexnet::AlexNet;
use crate::models::bert::{self, Bert};
use crate::models::lenet::LeNet;
use crate::models::lstm::{LastOutput, Sentiment, WordModel};
use crate::models::mlp::Mlp;
use crate::models::resnet::CifarResNet;
use crate::models::resnet50::ResNet50;
use crate::models::vgg::Vgg;
use crate::recipe::{self, Recipe};
use crate::replica::{Network, Replica};
use crate::{BuildError, DeviceChoice, flat};

/// A network that can be built.
#[derive(Debug)]
pub struct Entry {
    /// Its published name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it is for.
    pub wants: Wants,
    /// What it learns with, on which data; it is tried first on that of the first one, which needs no files.
    pub recipes: &'static [Recipe],
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

/// All networks.
pub const MODELS: &[Entry] = &[
    Entry {
        name: "mlp",
        about: "two hidden layers of 256 for quick runs",
        wants: Wants::Images { side: 1 },
        recipes: recipe::MLP,
        make: Make::Images(|place, shape, classes| {
            place.plan(|device| Mlp::new(shape, classes, device))
        }),
    },
    Entry {
        name: "lenet",
        about: "LeNet-5 with ReLU and max pooling",
        wants: Wants::Images { side: 12 },
        recipes: recipe::LENET,
        make: Make::Images(|place, shape, classes| {
            place.plan(|device| LeNet::new(shape, classes, device))
        }),
    },
    Entry {
        name: "resnet20",
        about: "ResNet-20 for CIFAR, parameter-free shortcuts (269,722 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        recipes: recipe::CIFAR_RESNET,
        make: cifar_resnet::<3>(),
    },
    Entry {
        name: "resnet56",
        about: "ResNet-56 for CIFAR, parameter-free shortcuts (853,018 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        recipes: recipe::CIFAR_RESNET,
        make: cifar_resnet::<9>(),
    },
    Entry {
        name: "resnet110",
        about: "ResNet-110 for CIFAR, parameter-free shortcuts (1,727,962 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        recipes: recipe::CIFAR_RESNET,
        make: cifar_resnet::<18>(),
    },
    Entry {
        name: "resnet50",
        about: "ResNet-50 for ImageNet (25,557,032 parameters for 1000 classes)",
        wants: Wants::Images { side: 32 },
        recipes: recipe::IMAGENET,
        make: Make::Images(|place, shape, classes| {
            place.plan(|device| ResNet50::new(shape[0], classes, device))
        }),
    },
    Entry {
        name: "vgg16",
        about: "VGG-16 for CIFAR with batch normalisation (14,728,266 parameters for 10 classes)",
        wants: Wants::Images { side: 32 },
        recipes: recipe::DEEP,
        make: Make::Images(|place, shape, classes| {
            place.plan(|device| Vgg::vgg16(shape[0], classes, device))
        }),
    },
    Entry {
        name: "vgg19",
        about: "VGG-19 for CIFAR with batch normalisation (20,040,522 parameters for 10 classes)",
        wants: Wants::Images { side: 32 },
        recipes: recipe::DEEP,
        make: Make::Images(|place, shape, classes| {
            place.plan(|device| Vgg::vgg19(shape[0], classes, device))
        }),
    },
    Entry {
        name: "alexnet",
        about: "AlexNet (61,100,840 parameters for ImageNet; 23,272,266 for CIFAR-10, a smaller form)",
        wants: Wants::Images { side: 16 },
        recipes: recipe::DEEP,
        make: Make::Images(|place, shape, classes| {
            place.plan(|device| AlexNet::new(shape, classes, device))
        }),
    },
    Entry {
        name: "lstm",
        about: "word language model, 2 layers of 650 (19,775,200 parameters for 10,000 words)",
        wants: Wants::Language,
        recipes: recipe::LSTM,
        make: Make::Language(|place, _, vocabulary| {
            place.plan(|device| WordModel::new(vocabulary, device))
        }),
    },
    Entry {
        name: "sentiment",
        about: "sentiment classifier by means, one layer of 64 (1,313,282 parameters for 20,000 words)",
        wants: Wants::Sequences,
        recipes: recipe::REVIEWS,
        make: Make::Sequences(|place, vocabulary, classes| {
            place.plan(|device| Sentiment::new(vocabulary, classes, device))
        }),
    },
    Entry {
        name: "lstmimdb",
        about: "sentiment classifier as published, one layer of 100, the last output (2,560,652 parameters for 50,001 words)",
        wants: Wants::Sequences,
        recipes: recipe::LSTMIMDB,
        make: Make::Sequences(|place, vocabulary, classes| {
            place.plan(|device| LastOutput::new(vocabulary, classes, device))
        }),
    },
    Entry {
        name: "bert",
        about: "the published BERT: another name of bert-base",
        wants: Wants::Language,
        recipes: recipe::BERT,
        make: Make::Language(bert_base),
    },
    Entry {
        name: "bert-base",
        about: "masked language model, 12 encoders of 768 (109,514,298 parameters as published)",
        wants: Wants::Language,
        recipes: recipe::BERT,
        make: Make::Language(bert_base),
    },
    Entry {
        name: "bert-small",
        about: "masked language model, 4 encoders of 512 (28,795,194 parameters for 30,522 words)",
        wants: Wants::Language,
        recipes: recipe::BERT,
        make: Make::Language(bert_small),
    },
    Entry {
        name: "bert-tiny",
        about: "masked language model, 2 encoders of 128 (4,416,698 parameters for 30,522 words)",
        wants: Wants::Language,
        recipes: recipe::BERT,
        make: Make::Language(bert_tiny),
    },
];

/// The network called `name`.
///
/// # Errors
/// When there is none; the message lists the names.
pub fn find(name: &str) -> Result<&'static Entry, BuildError> {
    MODELS
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| BuildError::Unknown {
            name: name.to_owned(),
        })
}

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
    plan(entry, task, device)?
        .replica(seed)
        .map_err(|source| BuildError::TooLarge {
            name: entry.name,
            source,
        })
}

/// Names and shapes of the parameters that [`build`] would make, without making them.
///
/// # Errors
/// As [`build`].
pub fn layout(name: &str, task: &Task) -> Result<Layout, BuildError> {
    let entry = find(name)?;
    plan(entry, task, &DeviceChoice::Flex)?
        .layout()
        .map_err(|source| BuildError::TooLarge {
            name: entry.name,
            source,
        })
}

/// A network whose parameters have no values yet.
trait Plan {
    fn layout(&self) -> Result<Layout, ConfigError>;
    fn replica(self: Box<Self>, seed: u64) -> Result<Box<dyn Model + Send>, ConfigError>;
}

struct Planned<N> {
    network: N,
    place: Place,
}

impl<N: Network + 'static> Plan for Planned<N> {
    fn layout(&self) -> Result<Layout, ConfigError> {
        flat::layout(&self.network)
    }

    fn replica(self: Box<Self>, seed: u64) -> Result<Box<dyn Model + Send>, ConfigError> {
        let Place { device, shape } = self.place;
        Ok(Box::new(Replica::new(self.network, seed, &device, &shape)?))
    }
}

fn plan(entry: &Entry, task: &Task, device: &DeviceChoice) -> Result<Box<dyn Plan>, BuildError> {
    check(entry, task)?;
    let place = |shape: &[usize]| Place {
        device: device.open(),
        shape: shape.to_vec(),
    };
    Ok(match (&entry.make, *task) {
        (Make::Images(make), Task::Images { shape, classes }) => {
            make(place(&shape), shape, classes)
        }
        (
            Make::Sequences(make),
            Task::Sequences {
                length,
                vocabulary,
                classes,
            },
        ) => make(place(&[length]), vocabulary, classes),
        (Make::Language(make), Task::Language { length, vocabulary }) => {
            make(place(&[length]), length, vocabulary)
        }
        _ => return Err(entry.refuse(task)),
    })
}

/// How to make a network of a task's numbers.
#[derive(Debug)]
enum Make {
    /// Channels, rows and columns; classes.
    Images(fn(Place, [usize; 3], usize) -> Box<dyn Plan>),
    /// Vocabulary, classes.
    Sequences(fn(Place, usize, usize) -> Box<dyn Plan>),
    /// Length, vocabulary.
    Language(fn(Place, usize, usize) -> Box<dyn Plan>),
}

/// Where a network will be, and the shape of its samples.
struct Place {
    device: Device,
    shape: Vec<usize>,
}

impl Place {
    fn plan<N: Network + 'static>(self, network: impl FnOnce(&Device) -> N) -> Box<dyn Plan> {
        let network = network(&self.device);
        Box::new(Planned {
            network,
            place: self,
        })
    }
}

impl Entry {
    /// What it learns this data set with: of a set that it has no recipe for, the numbers of another.
    ///
    /// # Panics
    /// Never: every network has a recipe.
    pub fn recipe(&self, dataset: &str) -> Recipe {
        let known = self.recipes.iter().find(|recipe| recipe.dataset == dataset);
        known.copied().unwrap_or_else(|| Recipe {
            image_size: None,
            length: None,
            vocabulary: None,
            ..*self.recipes.last().expect("every network has a recipe")
        })
    }

    fn refuse(&self, task: &Task) -> BuildError {
        let (expected, data) = match self.wants {
            Wants::Images { .. } => ("images", "mnist, cifar10, cifar100, imagenet or synthetic"),
            Wants::Sequences => ("labelled sequences", "imdb or synthetic-reviews"),
            Wants::Language => ("text", "text, wikitext or synthetic-text"),
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

fn bert_base(place: Place, length: usize, vocabulary: usize) -> Box<dyn Plan> {
    place.plan(|device| Bert::new(length, vocabulary, bert::BASE, device))
}

fn bert_small(place: Place, length: usize, vocabulary: usize) -> Box<dyn Plan> {
    place.plan(|device| Bert::new(length, vocabulary, bert::SMALL, device))
}

fn bert_tiny(place: Place, length: usize, vocabulary: usize) -> Box<dyn Plan> {
    place.plan(|device| Bert::new(length, vocabulary, bert::TINY, device))
}

const fn cifar_resnet<const BLOCKS: usize>() -> Make {
    Make::Images(|place, shape, classes| {
        place.plan(|device| CifarResNet::new(shape[0], classes, BLOCKS, device))
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
