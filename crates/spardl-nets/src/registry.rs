//! The networks by name.

use spardl_train::data::Task;

use crate::BuildError;
use crate::recipe::{self, Recipe};

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
    },
    Entry {
        name: "lenet",
        about: "LeNet-5 with ReLU and max pooling",
        wants: Wants::Images { side: 12 },
        recipes: recipe::LENET,
    },
    Entry {
        name: "resnet20",
        about: "ResNet-20 for CIFAR, parameter-free shortcuts (269,722 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        recipes: recipe::CIFAR_RESNET,
    },
    Entry {
        name: "resnet56",
        about: "ResNet-56 for CIFAR, parameter-free shortcuts (853,018 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        recipes: recipe::CIFAR_RESNET,
    },
    Entry {
        name: "resnet110",
        about: "ResNet-110 for CIFAR, parameter-free shortcuts (1,727,962 parameters for 10 classes)",
        wants: Wants::Images { side: 4 },
        recipes: recipe::CIFAR_RESNET,
    },
    Entry {
        name: "resnet50",
        about: "ResNet-50 for ImageNet (25,557,032 parameters for 1000 classes)",
        wants: Wants::Images { side: 32 },
        recipes: recipe::IMAGENET,
    },
    Entry {
        name: "vgg16",
        about: "VGG-16 for CIFAR with batch normalisation (14,728,266 parameters for 10 classes)",
        wants: Wants::Images { side: 32 },
        recipes: recipe::DEEP,
    },
    Entry {
        name: "vgg19",
        about: "VGG-19 for CIFAR with batch normalisation (20,040,522 parameters for 10 classes)",
        wants: Wants::Images { side: 32 },
        recipes: recipe::DEEP,
    },
    Entry {
        name: "alexnet",
        about: "AlexNet (61,100,840 parameters for ImageNet; 23,272,266 for CIFAR-10, a smaller form)",
        wants: Wants::Images { side: 16 },
        recipes: recipe::DEEP,
    },
    Entry {
        name: "lstm",
        about: "word language model, 2 layers of 650 (19,775,200 parameters for 10,000 words)",
        wants: Wants::Language,
        recipes: recipe::LSTM,
    },
    Entry {
        name: "sentiment",
        about: "sentiment classifier by means, one layer of 64 (1,313,282 parameters for 20,000 words)",
        wants: Wants::Sequences,
        recipes: recipe::REVIEWS,
    },
    Entry {
        name: "lstmimdb",
        about: "sentiment classifier as published, one layer of 100, the last output (2,560,652 parameters for 50,001 words)",
        wants: Wants::Sequences,
        recipes: recipe::LSTMIMDB,
    },
    Entry {
        name: "bert",
        about: "the published BERT: another name of bert-base",
        wants: Wants::Language,
        recipes: recipe::BERT,
    },
    Entry {
        name: "bert-base",
        about: "masked language model, 12 encoders of 768 (109,514,298 parameters as published)",
        wants: Wants::Language,
        recipes: recipe::BERT,
    },
    Entry {
        name: "bert-small",
        about: "masked language model, 4 encoders of 512 (28,795,194 parameters for 30,522 words)",
        wants: Wants::Language,
        recipes: recipe::BERT,
    },
    Entry {
        name: "bert-tiny",
        about: "masked language model, 2 encoders of 128 (4,416,698 parameters for 30,522 words)",
        wants: Wants::Language,
        recipes: recipe::BERT,
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

    /// Is it for such a task?
    ///
    /// # Errors
    /// When it is for another kind of data, for larger images, or the task has nothing to learn.
    pub fn check(&self, task: &Task) -> Result<(), BuildError> {
        check_numbers(self, task)?;
        match (self.wants, task) {
            (Wants::Images { .. }, Task::Images { .. })
            | (Wants::Sequences, Task::Sequences { .. })
            | (Wants::Language, Task::Language { .. }) => Ok(()),
            _ => Err(self.refuse(task)),
        }
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

fn check_numbers(entry: &Entry, task: &Task) -> Result<(), BuildError> {
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
